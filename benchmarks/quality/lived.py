"""``python -m benchmarks.quality.lived``: the recorded pods come when they came and stay as long as they ran.

No queue: a pod that fits nowhere is lost. Every pod arrives at its ``creation_time`` and stays for what lies between
its ``scheduled_time`` and its ``deletion_time``, whatever phase it ended in; who still ran when the trace ends leaves
then. The 897 pods that were never scheduled have no ``scheduled_time``, so nobody knows how long they would have run:
they are left out. No other time is missing.

All pods present at once ask for 65 of the cluster's 6,212 GPUs at most. So the cluster is every n-th node of the list
sorted by model, n such that this peak is nearest to ``LOAD`` (0.9 and 1.05) of its GPUs. A seed also chooses where the
counting starts; ``SEEDS`` are 42 to 51. ``POLICY`` as for the benchmark.
"""

from __future__ import annotations

import csv
import gzip
import io
import random
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.quality.cluster import Cluster, Tally
from benchmarks.quality.data import chosen_loads, chosen_seeds, folder, listed
from benchmarks.quality.ledger import WHOLE
from benchmarks.quality.runs import Run, kind_of_pod
from benchmarks.quality.trace import TraceNode, TracePod, read_nodes, read_pods
from benchmarks.results import Row, show

WORKLOAD = "default"
POLICIES = ("BestFit", "FGD", "binpack")
LOADS = (0.9, 1.05)
SEEDS = tuple(range(42, 52))


@dataclass(frozen=True, slots=True)
class Stay:
    """A pod, when it arrives and for how long it runs; seconds from the start of the trace."""

    at_s: float
    pod: TracePod
    lifetime_s: float


@dataclass(frozen=True, slots=True)
class Peak:
    """The most GPU demand present at once, in thousandths of devices, and when it is first there."""

    milli: int
    at_s: float


@dataclass(slots=True)
class Lived:
    """What a replay found: GPUs and peak load of its cluster, allocated per cent at the peak, what was lost."""

    gpus: int
    load: float
    allocated_at_peak_percent: float = 0.0
    lost_percent: float = 0.0
    lost: Counter[str] = field(default_factory=Counter)


def read_stays(data: Path, workload: str = WORKLOAD) -> list[Stay]:
    """Return the pods that were scheduled, in the order in which they arrive."""
    with gzip.open(data / f"openb_pod_list_{workload}.csv.gz") as file:
        rows = list(csv.DictReader(io.TextIOWrapper(file)))
    stays = [
        Stay(float(row["creation_time"]), pod, float(row["deletion_time"]) - float(row["scheduled_time"]))
        for row, pod in zip(rows, read_pods(data, workload), strict=True)
        if row["scheduled_time"]
    ]
    return sorted(stays, key=lambda stay: stay.at_s)


def peak_of(stays: Sequence[Stay]) -> Peak:
    """Return the peak of demand, were nothing lost; who leaves at a time is gone before others come."""
    changes = [(stay.at_s, stay.pod.gpu_milli) for stay in stays]
    changes += [(stay.at_s + stay.lifetime_s, -stay.pod.gpu_milli) for stay in stays]
    present, peak = 0, Peak(0, 0.0)
    for at_s, milli in sorted(changes):
        present += milli
        if present > peak.milli:
            peak = Peak(present, at_s)
    return peak


def part_of(nodes: Sequence[TraceNode], peak_milli: int, load: float, start: int) -> list[TraceNode]:
    """Return every n-th node by model, n such that the peak is nearest to ``load`` of the GPUs left.

    ``start`` is taken modulo n, and the first node counted from there.
    """
    by_model = sorted(nodes, key=lambda node: node.model)
    parts = (by_model[start % every :: every] for every in range(1, len(by_model) + 1))
    return min(parts, key=lambda part: abs(peak_milli / WHOLE / sum(node.cards for node in part) - load))


def replay(what: Run, load: float) -> Lived:
    """Return what happens to the recorded pods on a cluster of which their peak asks for ``load``.

    Raises BrokenDecision for a decision that breaks a limit or leaves a pod that would have fitted.
    """
    stays, nodes = read_stays(what.data, what.workload), read_nodes(what.data)
    peak = peak_of(stays)
    nodes = part_of(nodes, peak.milli, load, random.Random(what.seed).randrange(len(nodes)))
    cluster = Cluster(what, nodes, [stay.pod for stay in stays])
    capacity_milli, tally = cluster.ledger.capacity_milli, Tally()
    cluster.tally, lived = tally, Lived(capacity_milli // WHOLE, peak.milli / capacity_milli)
    for stay in stays:
        cluster.advance(stay.at_s)
        if not cluster.arrive(stay.pod, stay.lifetime_s):
            lived.lost[kind_of_pod(stay.pod)] += 1
        if stay.at_s == peak.at_s:
            lived.allocated_at_peak_percent = 100 * cluster.ledger.allocated_milli / capacity_milli
    lived.lost_percent = tally.lost_percent
    return lived


def main() -> int:
    """Replay at every load with every policy and print the table."""
    policies = listed("POLICY") or POLICIES
    show("quality-lived", [_measure(folder(), policy, load) for load in chosen_loads(*LOADS) for policy in policies])
    return 0


def _measure(data: Path, policy: str, load: float) -> Row:
    found = []
    for seed in chosen_seeds(*SEEDS):
        found.append(replay(Run(data, WORKLOAD, policy, seed), load))
        print(f"{policy} load {load} seed {seed}: {found[-1]}", file=sys.stderr, flush=True)
    kinds = sorted({kind for lived in found for kind in lived.lost})
    return {
        "policy": policy,
        "load": load,
        "load_found": round(statistics.fmean(lived.load for lived in found), 3),
        "seeds": len(found),
        "gpus": round(statistics.fmean(lived.gpus for lived in found), 1),
        "allocated_at_peak_percent": round(statistics.fmean(lived.allocated_at_peak_percent for lived in found), 2),
        "lost_percent": round(statistics.fmean(lived.lost_percent for lived in found), 3),
        "lost_percent_sd": round(statistics.stdev(lived.lost_percent for lived in found), 3) if found[1:] else 0.0,
        "lost": " ".join(f"{kind}:{statistics.fmean(lived.lost[kind] for lived in found):.1f}" for kind in kinds),
    }


if __name__ == "__main__":
    sys.exit(main())
