"""What the routes work with, wired once by ``app.create_app`` and handed down."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from extender.binder import Binder
from extender.clock import Clock
from extender.decisions import Decisions
from extender.evaluations import Evaluations, Judgement
from extender.evictions import Evictions
from extender.insight import Insight
from extender.metrics import Metrics
from extender.readiness import Readiness
from extender.settings import Settings
from extender.store import ClusterStore
from extender.viewers import Viewers, everyone
from extender.waker import Waker

_MEMOS = 8
_MEMO_AGE_S = 5.0


@dataclass(frozen=True, slots=True)
class Memo:
    """What filter found for a pod: the names it passed as the bytes that were answered, and their rows."""

    at: float
    names_json: bytes
    rows: npt.NDArray[np.intp]
    judgement: Judgement


class Memos:
    """Filter's last findings by pod UID, bounded, for the prioritize call that follows within milliseconds."""

    def __init__(self) -> None:
        self._memos: OrderedDict[str, Memo] = OrderedDict()

    def keep(self, uid: str, memo: Memo) -> None:
        """Remember what filter found; the oldest makes room."""
        self._memos[uid] = memo
        self._memos.move_to_end(uid)
        if len(self._memos) > _MEMOS:
            self._memos.popitem(last=False)

    def find(self, uid: str, names_json: bytes, now: float) -> Memo | None:
        """Return what filter found, if it was just now and for exactly these names."""
        memo = self._memos.get(uid)
        if memo is None or now - memo.at > _MEMO_AGE_S or memo.names_json != names_json:
            return None
        return memo


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of one extender; ``viewers`` tells who may see pod names."""

    settings: Settings
    clock: Clock
    store: ClusterStore
    readiness: Readiness
    evaluations: Evaluations
    binder: Binder
    waker: Waker
    decisions: Decisions
    metrics: Metrics
    insight: Insight
    memos: Memos = field(default_factory=Memos)
    evictions: Evictions = field(default_factory=Evictions)
    viewers: Viewers = everyone
