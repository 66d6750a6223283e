"""``python -m benchmarks.quality.churn``: pods come and go, so that filling up is not all that counts.

Poisson arrivals of pods drawn from a list, exponential lifetimes, no queue: a pod that fits nowhere is lost. Of
``LIFETIMES`` mean lifetimes (8) the second half is measured. ``LOAD=1.05,0.9`` is the GPU demand present on average, as
a part of the cluster's, were nothing lost. ``WORKLOADS``, ``SEEDS``, ``POLICY`` and ``COLD`` as for the benchmark.
"""

from __future__ import annotations

import heapq
import os
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.quality.data import folder, listed
from benchmarks.quality.ledger import BrokenDecision, Ledger
from benchmarks.quality.runs import Run, decider
from benchmarks.quality.trace import TracePod, read_nodes, read_pods
from benchmarks.results import Row, show

WORKLOADS = ("default", "gpushare60", "gpuspec33", "multigpu30")
LOADS = (1.05, 0.9)
LIFETIMES = 8.0


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


def churn(what: Run, load: float, lifetimes: float = LIFETIMES) -> tuple[float, float]:
    """Return allocated per cent and lost per cent of the GPU demand in the second half of a run.

    Raises BrokenDecision for a decision that breaks a limit or leaves a pod that would have fitted.
    """
    pods, chance = read_pods(what.data, what.workload), random.Random(what.seed + 1)
    cluster = _Cluster(what, pods)
    rate = load * cluster.ledger.capacity_milli / statistics.fmean(pod.gpu_milli for pod in pods)
    tally, now = Tally(), 0.0
    while now < lifetimes:
        now += chance.expovariate(rate)
        if now >= lifetimes / 2 and not cluster.tally:
            cluster.advance(lifetimes / 2)
            cluster.tally = tally
        cluster.advance(now)
        cluster.arrive(chance.choice(pods), chance.expovariate(1.0))
    return tally.allocated_percent(cluster.ledger.capacity_milli), tally.lost_percent


class _Cluster:
    """The cluster of a run at one time; adds up in ``tally`` once that is set."""

    def __init__(self, what: Run, pods: Sequence[TracePod]) -> None:
        nodes, draw = read_nodes(what.data), random.Random(what.seed)
        self.ledger = Ledger(nodes)
        self.tally: Tally | None = None
        self._decider = decider(what, self.ledger, nodes, pods, draw)
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

    def arrive(self, pod: TracePod, lifetime: float) -> None:
        """Place a pod that leaves after its lifetime, or lose it."""
        self._arrived += 1
        decision = self._decider.decide(pod)
        if decision is not None:
            self.ledger.take(pod, *decision)
            heapq.heappush(self._leaving, (self._now + lifetime, self._arrived, pod, *decision))
        elif self.ledger.fits(pod).any():
            raise BrokenDecision(f"{pod} was refused and would have fitted")
        if self.tally:
            self.tally.asked_milli += pod.gpu_milli
            self.tally.lost_milli += pod.gpu_milli if decision is None else 0

    def _pass(self, now: float) -> None:
        if self.tally:
            self.tally.held += (now - self._now) * self.ledger.allocated_milli
            self.tally.time += now - self._now
        self._now = now


def main() -> int:
    """Run every workload at every load and print the table."""
    lifetimes = float(os.environ.get("LIFETIMES") or LIFETIMES)
    loads = [float(load) for load in listed("LOAD")] or LOADS
    policies = listed("POLICY") or ["FGD", "binpack"]
    rows = [
        _measure(folder(), workload, policy, load, lifetimes)
        for load in loads
        for workload in listed("WORKLOADS") or WORKLOADS
        for policy in policies
    ]
    show("quality-churn", rows)
    return 0


def _measure(data: Path, workload: str, policy: str, load: float, lifetimes: float) -> Row:
    found = []
    for seed in [int(seed) for seed in listed("SEEDS")] or [42, 43]:
        what = Run(data, workload, policy, seed, knows_mix=not os.environ.get("COLD"))
        found.append(churn(what, load, lifetimes))
        print(f"{workload} {policy} load {load} seed {seed}: {found[-1]}", file=sys.stderr, flush=True)
    return {
        "workload": workload,
        "policy": policy,
        "load": load,
        "lifetimes": lifetimes,
        "seeds": len(found),
        "allocated_percent": round(statistics.fmean(allocated for allocated, _ in found), 2),
        "lost_percent": round(statistics.fmean(lost for _, lost in found), 2),
    }


if __name__ == "__main__":
    sys.exit(main())
