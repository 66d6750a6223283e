"""Names that the scheduler sent -> rows of the fleet, and rows -> the JSON from which answers are joined.

The quoted names of a fleet are kept while its nodes stay the same, so that no name is encoded twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import numpy.typing as npt

from extender.wire import quote
from scoring.fleet import Fleet, Row

UNKNOWN_ROW = -1


@dataclass(frozen=True, slots=True)
class SentNodes:
    """The nodes of one call, in the order sent: row of each (UNKNOWN_ROW where we know none), and its quoted name."""

    rows: npt.NDArray[np.intp]
    names_json: npt.NDArray[np.object_]

    def __len__(self) -> int:
        return len(self.rows)


class NodeNames:
    """Looks names up; remembers the quoted names of the present fleet."""

    def __init__(self) -> None:
        self._rows: Mapping[str, Row] | None = None
        self._quoted = np.empty(0, object)

    def sent(self, names: Sequence[str], fleet: Fleet) -> SentNodes:
        """Return rows and quoted names of what was sent. A name that was sent twice counts once."""
        rows = np.fromiter(map(fleet.rows.get, names, repeat(UNKNOWN_ROW)), np.intp, len(names))
        strangers = np.flatnonzero(rows == UNKNOWN_ROW)
        if _has_twins(rows, strangers, names):
            return self.sent(tuple(dict.fromkeys(names)), fleet)
        quoted = self.quoted(fleet)[rows] if len(fleet) else np.empty(len(rows), object)
        if len(strangers):
            quoted[strangers] = quote([names[at] for at in strangers.tolist()])
        return SentNodes(rows, quoted)

    def quoted(self, fleet: Fleet) -> npt.NDArray[np.object_]:
        """Return the quoted name of every row."""
        if self._rows is not fleet.rows:
            self._rows, self._quoted = fleet.rows, quote(fleet.names)
        return self._quoted


def _has_twins(rows: npt.NDArray[np.intp], strangers: npt.NDArray[np.intp], names: Sequence[str]) -> bool:
    """Return whether some name was sent twice."""
    counts = np.bincount(rows + 1)
    return bool((counts[1:] > 1).any()) or len({names[at] for at in strangers.tolist()}) < len(strangers)
