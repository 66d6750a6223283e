"""kube-scheduler's own scoring of nodes for pods that ask for no GPU, for who routes GPU pods only to the product.

The two plugins that a default kube-scheduler scores resources with, both of weight 1 and both on CPU and memory:
NodeResourcesFit (``LeastAllocated`` spreads, ``MostAllocated`` packs), NodeResourcesBalancedAllocation. Whole numbers
0..100 each, as there; the best of all nodes that fit, at random among equals.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from benchmarks.quality.ledger import Ledger
from benchmarks.quality.trace import TracePod

STRATEGIES = ("spreading", "packing")
_MOST = 100


def stock(ledger: Ledger, draw: random.Random, strategy: str) -> Callable[[TracePod], int | None]:
    """Return what names a node for a pod without GPUs, or None where none fits; ``strategy`` is one of STRATEGIES."""
    if strategy not in STRATEGIES:
        raise ValueError(f"CPU_ONLY: {strategy!r} is no strategy; there are {', '.join(STRATEGIES)}")
    cpu = np.array([node.cpu_milli for node in ledger.nodes], np.int64)
    memory = np.array([node.memory_mib for node in ledger.nodes], np.int64)

    def choose(pod: TracePod) -> int | None:
        fits = np.flatnonzero(ledger.fits_host(pod))
        if not len(fits):
            return None
        asked_cpu = cpu[fits] - ledger.cpu_left[fits] + pod.cpu_milli
        asked_memory = memory[fits] - ledger.memory_left[fits] + pod.memory_mib
        score = scores(asked_cpu, cpu[fits], asked_memory, memory[fits], strategy)
        return int(draw.choice(fits[score == score.max()].tolist()))

    return choose


def scores(
    asked_cpu: npt.NDArray[np.int64],
    cpu: npt.NDArray[np.int64],
    asked_memory: npt.NDArray[np.int64],
    memory: npt.NDArray[np.int64],
    strategy: str,
) -> npt.NDArray[np.int64]:
    """Return 0..200 for each node: what would be asked of it against what it has, by both plugins."""
    if strategy == "packing":
        fit = (asked_cpu * _MOST // cpu + asked_memory * _MOST // memory) // 2
    else:
        fit = ((cpu - asked_cpu) * _MOST // cpu + (memory - asked_memory) * _MOST // memory) // 2
    spread = np.abs(asked_cpu / cpu - asked_memory / memory) / 2
    return np.asarray(fit + ((1 - spread) * _MOST).astype(np.int64), np.int64)
