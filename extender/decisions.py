"""A bounded memory of recent decisions: what was asked, what came out, and why.

May be lost at any time. The newest decision of each kind for a pod is kept apart, so that ``explain`` finds it while
other pods keep the ring busy.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from enum import StrEnum

import msgspec


class Verb(StrEnum):
    """What kube-scheduler asked."""

    FILTER = "filter"
    PRIORITIZE = "prioritize"
    PREEMPT = "preempt"
    BIND = "bind"


class Decision(msgspec.Struct, frozen=True, gc=False):
    """One answer to kube-scheduler; a struct, because several are made for every pod.

    ``at``         seconds since 1970
    ``nodes_in``, ``nodes_out``   nodes that were sent, and that passed
    ``reasons``    reason code -> number of nodes refused for it
    ``node``       where a bind placed the pod, or prioritize's first choice
    ``message``    in words; empty when there is nothing to add
    ``devices``    UUIDs that a bind gave, container by container
    ``sequence``   grows by one with each decision; given by ``Decisions``
    """

    verb: Verb
    at: float
    pod_uid: str
    namespace: str
    name: str
    outcome: str
    generation: int
    duration_ms: float
    nodes_in: int = 0
    nodes_out: int = 0
    policy: str = ""
    node: str = ""
    message: str = ""
    reasons: Mapping[str, int] = msgspec.field(default_factory=dict)
    devices: tuple[str, ...] = ()
    sequence: int = 0


class Decisions:
    """The ring of recent decisions, and the newest of each pod."""

    def __init__(self, kept: int) -> None:
        self._ring: deque[Decision] = deque(maxlen=kept)
        self._by_pod: OrderedDict[tuple[str, str], dict[Verb, Decision]] = OrderedDict()
        self._kept = kept
        self._sequence = 0

    @property
    def sequence(self) -> int:
        """Return the number of decisions noted so far."""
        return self._sequence

    def note(self, decision: Decision) -> None:
        """Remember a decision; the oldest makes room."""
        self._sequence += 1
        numbered = msgspec.structs.replace(decision, sequence=self._sequence)
        self._ring.append(numbered)
        key = (decision.namespace, decision.name)
        known = self._by_pod.setdefault(key, {})
        self._by_pod.move_to_end(key)
        if any(earlier.pod_uid != decision.pod_uid for earlier in known.values()):
            known.clear()
        known[decision.verb] = numbered
        while len(self._by_pod) > self._kept:
            self._by_pod.popitem(last=False)

    def recent(self, limit: int, after: int = 0) -> tuple[Decision, ...]:
        """Return up to ``limit`` decisions with a sequence above ``after``, newest first."""
        newest_first = (decision for decision in reversed(self._ring) if decision.sequence > after)
        return tuple(decision for decision, _ in zip(newest_first, range(limit), strict=False))

    def of_pod(self, namespace: str, name: str) -> Mapping[Verb, Decision]:
        """Return the newest decision of each kind about a pod; empty when none is remembered."""
        return dict(self._by_pod.get((namespace, name), {}))
