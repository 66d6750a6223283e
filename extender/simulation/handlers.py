"""Hand what the reflectors tell to the scheduler and to whoever else listens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from extender.changes import ObjectKey
from extender.simulation.nodefit import SeenNode, SeenPod
from extender.simulation.scheduler import Scheduler


@dataclass(slots=True)
class PodHandler:
    """Hands a reflector's pods to the scheduler."""

    scheduler: Scheduler
    others: list[Callable[[SeenPod], None]] = field(default_factory=list)

    def on_set(self, item: SeenPod) -> None:
        """Take a pod."""
        self.scheduler.on_pod(item)
        for other in self.others:
            other(item)

    def on_delete(self, key: ObjectKey) -> None:
        """Let go of a pod."""
        self.scheduler.on_pod_gone(key)

    def on_synced(self) -> None:
        """Nothing waits for this: an unknown node is simply not there yet."""


@dataclass(slots=True)
class NodeHandler:
    """Hands a reflector's nodes to the scheduler."""

    scheduler: Scheduler

    def on_set(self, item: SeenNode) -> None:
        """Take a node."""
        self.scheduler.on_node(item)

    def on_delete(self, key: ObjectKey) -> None:
        """Let go of a node."""
        self.scheduler.on_node_gone(key)

    def on_synced(self) -> None:
        """Nothing waits for this."""
