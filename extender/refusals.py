"""Filter's answers to pods that fit nowhere, remembered: such pods are asked about at every event that wakes them.

The answer names every node that was sent with its reason, in maps, and nobody reads the order of a map. So the same
verdicts about the same nodes are answered with the same bytes, whichever pod asks and in whichever order nodes come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from extender.evaluations import Judgement
from extender.native_names import NameTable
from extender.nodenames import SentNodes
from scoring.fleet import ByteArray

_KEPT = 16
"""Half a megabyte each for 5,000 nodes."""


@dataclass(frozen=True, slots=True)
class FilterAnswer:
    """An answer of filter's, how many nodes each reason refused, and who passed: as a JSON array and as rows."""

    body: bytes
    reasons: Mapping[str, int]
    passed: bytes
    rows: npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class _Known:
    """An answer with what it followed from: arrays and table are the very objects, which nobody writes to."""

    code: ByteArray
    reason: ByteArray
    table: NameTable
    nodes: bytes
    answer: FilterAnswer


class Refusals:
    """The last answers that let no node through, a few; only of nodes all of which are known, each sent once."""

    def __init__(self) -> None:
        self._known: list[_Known] = []

    def __len__(self) -> int:
        return len(self._known)

    def find(self, judgement: Judgement, sent: SentNodes) -> FilterAnswer | None:
        """Return what was answered to the same verdicts about the same nodes."""
        nodes = b""
        for known in self._known:
            if known.code is judgement.code and known.reason is judgement.reason and known.table is sent.table:
                nodes = nodes or _nodes(judgement, sent)
                if known.nodes == nodes:
                    return known.answer
        return None

    def keep(self, judgement: Judgement, sent: SentNodes, answer: FilterAnswer) -> None:
        """Remember an answer that lets no node through; the oldest makes room."""
        if sent.table is not None:
            nodes = _nodes(judgement, sent)
            self._known.append(_Known(judgement.code, judgement.reason, sent.table, nodes, answer))
            del self._known[:-_KEPT]


def _nodes(judgement: Judgement, sent: SentNodes) -> bytes:
    """Return which rows were sent, a byte for each row of the fleet."""
    were_sent = np.zeros(len(judgement.fleet), np.bool_)
    were_sent[sent.rows] = True
    return were_sent.tobytes()
