"""Serving, ready and allowed to decide are three things (design section 5).

The process serves at once. It is ready when the lists of pods and nodes are in. It decides when, besides, reports came
from every node known to have devices, or a bounded wait for them is over.
"""

from __future__ import annotations

from collections.abc import Callable

PODS = "pods"
NODES = "nodes"


class Readiness:
    """What is still missing; ``unreported`` returns the nodes known to have devices that have not been heard of."""

    def __init__(self, unreported: Callable[[], frozenset[str]], wait_s: float) -> None:
        self._unreported = unreported
        self._wait_s = wait_s
        self._missing = [PODS, NODES]
        self._ready_at: float | None = None
        self._decides = False

    def listed(self, kind: str, now: float) -> None:
        """Note that the list of ``kind`` is in; later lists change nothing."""
        if kind in self._missing:
            self._missing.remove(kind)
            if not self._missing:
                self._ready_at = now

    @property
    def is_ready(self) -> bool:
        """Return whether the lists are in."""
        return self._ready_at is not None

    def missing(self, now: float) -> str:
        """Return in words what a decision still waits for; empty when it may be made. Once allowed, always allowed."""
        if self._decides:
            return ""
        if self._ready_at is None:
            return "not ready: waiting for the list of " + " and ".join(self._missing)
        waiting = self._unreported()
        if waiting and now - self._ready_at < self._wait_s:
            return f"not deciding yet: waiting for reports from {len(waiting)} nodes known to have GPUs"
        self._decides = True
        return ""
