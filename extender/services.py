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


@dataclass(frozen=True, slots=True)
class Memo:
    """What filter found for a pod: the names it passed as the bytes that were answered, their rows, what it asks."""

    at: float
    names_json: bytes
    rows: npt.NDArray[np.intp]
    request: PodRequest
    judgement: Judgement


class Memos:
    """Filter's last findings by pod UID, bounded, for the prioritize call that follows within milliseconds.

    The pods themselves are kept for longer, for their binds: a memo holds on to a fleet, a pod to nothing.
    """

    def __init__(self) -> None:
        self._memos: OrderedDict[str, Memo] = OrderedDict()
        self._pods: OrderedDict[str, Pod] = OrderedDict()

    def keep(self, pod: Pod, memo: Memo) -> None:
        """Remember what filter found; the oldest makes room."""
        keep(self._memos, pod.metadata.uid, memo, _MEMOS)
        keep(self._pods, pod.metadata.uid, pod, _PODS)

    def take_pod(self, uid: str) -> Pod | None:
        """Return the pod as kube-scheduler sent it last, once."""
        return self._pods.pop(uid, None)

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
    forthcoming: Forthcoming
    memos: Memos = field(default_factory=Memos)
    evictions: Evictions = field(default_factory=Evictions)
    viewers: Viewers = everyone
