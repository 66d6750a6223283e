"""Which pods wait for a node, and since when: a bounded list beside the store, which keeps only what is placed."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from extender.holdings import ObservedPod, PodIdentity

_KEPT = 20_000


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pod without a node; ``since`` is on the extender's clock, when it was first seen."""

    pod: PodIdentity
    since: float


class WaitingPods:
    """Pods that ask for devices and have no node yet, oldest first; bounded, later ones are left out."""

    def __init__(self) -> None:
        self._pods: OrderedDict[str, Waiting] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pods)

    def on_pod(self, seen: ObservedPod, now: float) -> None:
        """Take in what the watch says of a pod."""
        asks = seen.request is None or seen.request.asks_gpu
        if seen.node or seen.is_over or seen.is_terminating or not asks:
            self._pods.pop(seen.pod.uid, None)
        elif seen.pod.uid not in self._pods and len(self._pods) < _KEPT:
            self._pods[seen.pod.uid] = Waiting(seen.pod, now)

    def on_gone(self, uid: str) -> None:
        """Let go of a pod that is gone."""
        self._pods.pop(uid, None)

    def oldest(self, limit: int) -> list[Waiting]:
        """Return up to ``limit`` pods, those that wait longest first."""
        return [waiting for waiting, _ in zip(self._pods.values(), range(limit), strict=False)]
