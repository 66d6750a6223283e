"""``python -m benchmarks.quality.types``: what the GPUs cost that pods are placed on, and who sits on those in demand.

While the cluster fills, at 30, 50, 70 and 90 % of demand arrived. Costs are the catalogue's, T4 = 1.0; a GPU counts
with its whole cost once anything is on it. The trace does not disclose G2 and G3: theirs is the catalogue's estimate.

*Dear* are the kinds that cost at least the fleet's median GPU. (The median is itself the dearest kind's: 71 % are G2,
so no kind lies above it.) *Sought* are the models whose part in the demand by name is larger than their part of the
GPUs; a pod that names several counts for each by its number of GPUs. (Some pod names each model, and so that alone
tells nothing.) ``WORKLOADS``, ``SEEDS`` and ``POLICY`` choose.
"""

from __future__ import annotations

import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.quality.baselines import Decision
from benchmarks.quality.data import chosen_seeds, folder, listed
from benchmarks.quality.ledger import WHOLE, Ledger, Nodes
from benchmarks.quality.product import kind_of
from benchmarks.quality.runs import Run, run
from benchmarks.quality.trace import TraceNode, TracePod, read_nodes, read_pods
from benchmarks.results import Row, show

WORKLOADS = ("default", "gpuspec10", "gpuspec33")
POLICIES = ("BestFit", "FGD", "binpack")
READINGS = (30, 50, 70, 90)
"""GPU demand arrived, in per cent of capacity."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Cost in T4s per whole GPU's worth placed; per cent of dear GPUs in use; per cent of unchoosy demand on sought.

    The last is None where no pod names a model.
    """

    cost_per_gpu: float
    dear_percent: float
    sought_percent: float | None


class Watch:
    """Follows a run and takes a reading when the demand that arrived first reaches each of ``READINGS``."""

    def __init__(self, nodes: Sequence[TraceNode], pods: Sequence[TracePod]) -> None:
        self.readings: dict[int, Reading] = {}
        self._cost = np.array([kind_of(node.model).cost for node in nodes])
        self._dear = self._cost >= median_cost(nodes)
        self._sought = sought(nodes, pods)
        self._arrived_milli = self._unchoosy_milli = self._on_sought_milli = 0

    def __call__(self, pod: TracePod, decision: Decision | None, ledger: Ledger) -> None:
        """Take in one arrival and where it went."""
        self._arrived_milli += pod.gpu_milli
        if decision is not None and not pod.models:
            self._unchoosy_milli += pod.gpu_milli
            self._on_sought_milli += pod.gpu_milli * (ledger.nodes[decision[0]].model in self._sought)
        for at in READINGS:
            if at not in self.readings and 100 * self._arrived_milli >= at * ledger.capacity_milli:
                self.readings[at] = self._read(ledger)

    def _read(self, ledger: Ledger) -> Reading:
        in_use = _count((ledger.card_left >= 0) & (ledger.card_left < WHOLE))
        there = _count(ledger.card_left >= 0)
        sought_percent = 100 * self._on_sought_milli / max(self._unchoosy_milli, 1) if self._sought else None
        return Reading(
            float(in_use @ self._cost) * WHOLE / max(ledger.allocated_milli, 1),
            float(100 * in_use[self._dear].sum() / there[self._dear].sum()),
            sought_percent,
        )


def median_cost(nodes: Sequence[TraceNode]) -> float:
    """Return the cost of the fleet's median GPU."""
    return statistics.median_low([kind_of(node.model).cost for node in nodes for _ in range(node.cards)])


def sought(nodes: Sequence[TraceNode], pods: Sequence[TracePod]) -> frozenset[str]:
    """Return the models whose part in the demand by name is larger than their part of the GPUs."""
    supply: Counter[str] = Counter()
    for node in nodes:
        supply[node.model] += node.cards
    named: defaultdict[str, float] = defaultdict(float)
    for pod in pods:
        choice = [model for model in set(pod.models) if supply[model]]
        cards = sum(supply[model] for model in choice)
        for model in choice:
            named[model] += pod.gpu_milli * supply[model] / cards
    return frozenset(model for model in named if named[model] * supply.total() > supply[model] * sum(named.values()))


def _count(cards: Nodes) -> npt.NDArray[np.int64]:
    return np.asarray(cards.sum(axis=0), np.int64)


def main() -> int:
    """Run every workload with every policy and print the table."""
    rows: list[Row] = []
    for workload in listed("WORKLOADS") or WORKLOADS:
        for policy in listed("POLICY") or POLICIES:
            rows += _measure(folder(), workload, policy)
    show("quality-types", rows)
    return 0


def _measure(data: Path, workload: str, policy: str) -> list[Row]:
    nodes, pods = read_nodes(data), read_pods(data, workload)
    found = []
    for seed in chosen_seeds(42, 43):
        watch = Watch(nodes, pods)
        run(Run(data, workload, policy, seed), watch)
        found.append(watch.readings)
        print(f"{workload} {policy} seed {seed}: {watch.readings}", file=sys.stderr, flush=True)
    return [
        {
            "workload": workload,
            "policy": policy,
            "seeds": len(found),
            "demand_percent": at,
            "cost_per_gpu": round(statistics.fmean(readings[at].cost_per_gpu for readings in found), 3),
            "dear_percent": round(statistics.fmean(readings[at].dear_percent for readings in found), 1),
            "sought_percent": _mean([readings[at].sought_percent for readings in found]),
        }
        for at in READINGS
    ]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.fmean(known), 1) if known else None


if __name__ == "__main__":
    sys.exit(main())
