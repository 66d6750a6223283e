"""The cluster of a run whose pods come and go: who decides, what runs, and who leaves when."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.quality.ledger import Ledger
from benchmarks.quality.runs import Run, arrive, decider
from benchmarks.quality.trace import TraceNode, TracePod


@dataclass(slots=True)
class Tally:
    """What is measured: demand asked and lost in thousandths of devices, and the integral of what is allocated."""

    asked_milli: int = 0
    lost_milli: int = 0
    held: float = 0.0
    time: float = 0.0

    @property
    def lost_percent(self) -> float:
        """Return the part of the GPU demand that was lost."""
        return 100 * self.lost_milli / max(self.asked_milli, 1)

    def allocated_percent(self, capacity_milli: int) -> float:
        """Return the mean of what was allocated."""
        return 100 * self.held / max(self.time, 1e-9) / capacity_milli


class Cluster:
    """The cluster of a run at one time, in the run's own unit of time; adds up in ``tally`` once that is set."""

    def __init__(self, what: Run, nodes: Sequence[TraceNode], pods: Sequence[TracePod]) -> None:
        self.ledger = Ledger(nodes)
        self.tally: Tally | None = None
        self._decider = decider(what, self.ledger, nodes, pods, random.Random(what.seed))
        self._leaving: list[tuple[float, int, TracePod, int, tuple[int, ...]]] = []
        self._now, self._arrived = 0.0, 0

    def advance(self, now: float) -> None:
        """Let time pass and pods go whose time has come."""
        while self._leaving and self._leaving[0][0] <= now:
            at, _, pod, node, cards = heapq.heappop(self._leaving)
            self._pass(at)
            self.ledger.release(pod, node, cards)
            self._decider.release(pod, node, cards)
        self._pass(now)

    def arrive(self, pod: TracePod, lifetime: float) -> bool:
        """Place a pod that leaves after its lifetime, or lose it; return whether it was placed.

        Raises BrokenDecision for a decision that breaks a limit or leaves a pod that would have fitted.
        """
        self._arrived += 1
        decision = arrive(self._decider.decide, self.ledger, pod)
        if decision is not None:
            heapq.heappush(self._leaving, (self._now + lifetime, self._arrived, pod, *decision))
        if self.tally:
            self.tally.asked_milli += pod.gpu_milli
            self.tally.lost_milli += pod.gpu_milli if decision is None else 0
        return decision is not None

    def _pass(self, now: float) -> None:
        if self.tally:
            self.tally.held += (now - self._now) * self.ledger.allocated_milli
            self.tally.time += now - self._now
        self._now = now
