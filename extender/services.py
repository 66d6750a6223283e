"""What the routes work with, wired once by ``app.create_app`` and handed down."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from extender.binder import Binder
from extender.bounded import keep
from extender.clock import Clock
from extender.decisions import Decisions
from extender.evaluations import Evaluations, Judgement
from extender.evictions import Evictions
from extender.forthcoming import Forthcoming
from extender.insight import Insight
from extender.metrics import Metrics
from extender.objects import Pod
from extender.readiness import Readiness
from extender.settings import Settings
from extender.store import ClusterStore
from extender.viewers import Viewers, everyone
from extender.waker import Waker
from scoring.request import PodRequest

_MEMOS = 8
_PODS = 256
_MEMO_AGE_S = 5.0
_TAIL = b"}"
"""What follows the names in a body, where kube-scheduler wrote it."""


def head_of(body: bytes, names_json: bytes) -> bytes | None:
    """Return what comes before the names in a body, None where more follows them than its end."""
    at = len(body) - len(_TAIL) - len(names_json)
    return body[:at] if body.startswith(names_json, max(at, 0)) and body.endswith(_TAIL) else None


@dataclass(frozen=True, slots=True)
class Memo:
    """What filter found for a pod: the names it passed as the bytes that were answered, their rows, what it asks.

    ``head`` is what came before the names in filter's body, and None where something came behind them. kube-scheduler
    asks prioritize about the same pod in the same bytes, with the names that passed.
    """

    at: float
    pod: Pod
    head: bytes | None
    names_json: bytes
    rows: npt.NDArray[np.intp]
    request: PodRequest
    judgement: Judgement

    def is_asked_by(self, body: bytes) -> bool:
        """Return whether a body asks about this pod and these names."""
        if self.head is None or len(body) != len(self.head) + len(self.names_json) + len(_TAIL):
            return False
        return body.startswith(self.head) and body.startswith(self.names_json, len(self.head)) and body.endswith(_TAIL)


class Memos:
    """Filter's last findings by pod UID, bounded, for the prioritize call that follows within milliseconds.

    The pods themselves are kept for longer, for their binds: a memo holds on to a fleet, a pod to nothing.
    """

    def __init__(self) -> None:
        self._memos: OrderedDict[str, Memo] = OrderedDict()
        self._pods: OrderedDict[str, Pod] = OrderedDict()

    def keep(self, memo: Memo) -> None:
        """Remember what filter found, and the pod; the oldest makes room."""
        keep(self._memos, memo.pod.metadata.uid, memo, _MEMOS)
        keep(self._pods, memo.pod.metadata.uid, memo.pod, _PODS)

    def take_pod(self, uid: str) -> Pod | None:
        """Return the pod as kube-scheduler sent it last, once."""
        return self._pods.pop(uid, None)

    def find(self, body: bytes, now: float) -> Memo | None:
        """Return what filter found just now for the pod and exactly the names that a body asks prioritize about."""
        for memo in reversed(self._memos.values()):
            if memo.is_asked_by(body):
                return memo if now - memo.at <= _MEMO_AGE_S else None
        return None


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
    forthcoming: Forthcoming
    memos: Memos = field(default_factory=Memos)
    evictions: Evictions = field(default_factory=Evictions)
    viewers: Viewers = everyone
