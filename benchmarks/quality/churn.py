"""``python -m benchmarks.quality.churn``: pods come and go, so that filling up is not all that counts.

Poisson arrivals of pods drawn from a list, exponential lifetimes, no queue: a pod that fits nowhere is lost. Of
``LIFETIMES`` mean lifetimes (8) the second half is measured. ``LOAD=1.05,0.9`` is the GPU demand present on average, as
a part of the cluster's, were nothing lost. ``WORKLOADS``, ``SEEDS``, ``POLICY`` and ``COLD`` as for the benchmark.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
from pathlib import Path

from benchmarks.quality.cluster import Cluster, Tally
from benchmarks.quality.data import chosen_loads, chosen_seeds, folder, listed
from benchmarks.quality.runs import Run
from benchmarks.quality.trace import read_nodes, read_pods
from benchmarks.results import Row, show

WORKLOADS = ("default", "gpushare60", "gpuspec33", "multigpu30")
LOADS = (1.05, 0.9)
LIFETIMES = 8.0


def churn(what: Run, load: float, lifetimes: float = LIFETIMES) -> tuple[float, float]:
    """Return allocated per cent and lost per cent of the GPU demand in the second half of a run.

    Raises BrokenDecision for a decision that breaks a limit or leaves a pod that would have fitted.
    """
    pods, chance = read_pods(what.data, what.workload), random.Random(what.seed + 1)
    cluster = Cluster(what, read_nodes(what.data), pods)
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


def main() -> int:
    """Run every workload at every load and print the table."""
    lifetimes = float(os.environ.get("LIFETIMES") or LIFETIMES)
    policies = listed("POLICY") or ["FGD", "binpack"]
    rows = [
        _measure(folder(), workload, policy, load, lifetimes)
        for load in chosen_loads(*LOADS)
        for workload in listed("WORKLOADS") or WORKLOADS
        for policy in policies
    ]
    show("quality-churn", rows)
    return 0


def _measure(data: Path, workload: str, policy: str, load: float, lifetimes: float) -> Row:
    found = []
    for seed in chosen_seeds(42, 43):
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
