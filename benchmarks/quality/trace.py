"""The openb trace as the placement benchmark reads it: nodes, pod lists, and the arrival process of the FGD paper.

Weng et al., USENIX ATC 2023, and its artifact's README; the data's own README has provenance and licence.
"""

from __future__ import annotations

import csv
import gzip
import io
import random
from dataclasses import dataclass
from pathlib import Path

TARGET_RATIO = 1.3
"""Arrivals stop when their GPU demand has reached this many times the cluster's capacity."""

WORKLOADS = (
    "default", "cpu050", "cpu100", "cpu200", "cpu250", "gpushare40", "gpushare60", "gpushare80", "gpushare100",
    "gpuspec10", "gpuspec20", "gpuspec25", "gpuspec33", "multigpu20", "multigpu30", "multigpu40", "multigpu50",
)  # fmt: skip
"""The 17 workloads that the paper's figures use."""


@dataclass(frozen=True, slots=True)
class TraceNode:
    """One node: 1/1000 cores, MiB, cards and their model."""

    name: str
    cpu_milli: int
    memory_mib: int
    cards: int
    model: str


@dataclass(frozen=True, slots=True)
class TracePod:
    """What one pod asks: 1/1000 cores, MiB, cards, thousandths of each card, accepted models (empty: any)."""

    cpu_milli: int
    memory_mib: int
    cards: int
    card_milli: int
    models: tuple[str, ...]

    @property
    def gpu_milli(self) -> int:
        """Return the GPU demand of the whole pod."""
        return self.cards * self.card_milli


def read_nodes(folder: Path) -> list[TraceNode]:
    """Return the nodes with GPUs, the cluster of the published experiments."""
    with (folder / "openb_node_list_gpu_node.csv").open(newline="") as file:
        return [
            TraceNode(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"])
            for row in csv.DictReader(file)
        ]


def read_pods(folder: Path, workload: str) -> list[TracePod]:
    """Return the pods of one list in its order; multigpu lists say nothing of models."""
    with gzip.open(folder / f"openb_pod_list_{workload}.csv.gz") as file:
        rows = csv.DictReader(io.TextIOWrapper(file))
        return [
            TracePod(
                int(row["cpu_milli"]),
                int(row["memory_mib"]),
                int(row["num_gpu"]),
                int(row["gpu_milli"]),
                tuple(sorted(filter(None, (row.get("gpu_spec") or "").split("|")))),
            )
            for row in rows
        ]


def arrivals(pods: list[TracePod], nodes: list[TraceNode], draw: random.Random) -> list[TracePod]:
    """Return the order of arrival: the list shuffled, then pods drawn from it until the target demand is reached."""
    target = TARGET_RATIO * 1000 * sum(node.cards for node in nodes)
    order = draw.sample(pods, len(pods))
    demand = sum(pod.gpu_milli for pod in order)
    while demand > target:
        demand -= order.pop(draw.randrange(len(order))).gpu_milli
    while True:
        pod = draw.choice(pods)
        if demand + pod.card_milli > target:
            return order
        order.append(pod)
        demand += pod.gpu_milli
