"""Short events on pods, on change only: why a pod waits, and that the wait is over.

Kubernetes' own event counts reasons; ours names the nearest change. A pod gets one when the reasons it is refused for
change, at most one a minute; all pods together get a few a second. Only whoever holds the lease writes. The state of a
pod is forgotten with its end, and the number of pods remembered is bounded.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from extender.bounded import keep
from extender.decisions import Decision, Verb
from extender.kubeapi import EventNote, EventType

APART_S = 60.0
_REMEMBERED = 5000
_QUEUED = 500
WAITS = "GpuNotAvailable"
PLACED = "GpuPlaced"


@dataclass(slots=True)
class _Told:
    """What a pod was told last: the reasons, and when (seconds of the extender's clock)."""

    reasons: frozenset[str]
    at: float


@dataclass(frozen=True, slots=True)
class Due:
    """One pod that is to get an event; a bind that ended its wait carries the decision's node and devices."""

    uid: str
    namespace: str
    name: str
    node: str = ""
    devices: tuple[str, ...] = ()

    def placed_note(self) -> EventNote:
        """Return the event that ends a wait."""
        devices = ", ".join(self.devices)
        message = f"Placed on node {self.node} with {devices}" if devices else f"Placed on node {self.node}"
        return EventNote("Pod", self.namespace, self.name, self.uid, PLACED, message, EventType.NORMAL)

    def waits_note(self, message: str) -> EventNote:
        """Return the event that tells why a pod waits."""
        return EventNote("Pod", self.namespace, self.name, self.uid, WAITS, message)


class PodEvents:
    """Decides which decisions are worth an event, and when."""

    def __init__(self) -> None:
        self._told: OrderedDict[str, _Told] = OrderedDict()
        self._due: OrderedDict[str, Due] = OrderedDict()

    def note(self, decision: Decision, now: float) -> None:
        """Take a decision in: a filter that no node passed, or a bind that succeeded."""
        if decision.verb is Verb.FILTER and decision.reasons and not decision.nodes_out:
            self._refused(decision, now)
        elif decision.verb is Verb.BIND and decision.outcome == "bound":
            self._bound(decision)

    def take_due(self, limit: int) -> list[Due]:
        """Return up to ``limit`` pods that are to get an event now; they count as told."""
        return [self._due.popitem(last=False)[1] for _ in range(min(limit, len(self._due)))]

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self._told.pop(uid, None)
        self._due.pop(uid, None)

    def _refused(self, decision: Decision, now: float) -> None:
        reasons, told = frozenset(decision.reasons), self._told.get(decision.pod_uid)
        if told is not None and (told.reasons == reasons or now - told.at < APART_S):
            return
        if len(self._due) >= _QUEUED:
            return
        keep(self._told, decision.pod_uid, _Told(reasons, now), _REMEMBERED)
        self._due[decision.pod_uid] = Due(decision.pod_uid, decision.namespace, decision.name)

    def _bound(self, decision: Decision) -> None:
        """End a wait that the pod was told of; a pod that never waited needs no event of ours."""
        if self._told.pop(decision.pod_uid, None) is None:
            return
        if self._due.pop(decision.pod_uid, None) is None:
            self._due[decision.pod_uid] = Due(
                decision.pod_uid, decision.namespace, decision.name, decision.node, decision.devices
            )
