"""``python -m benchmarks.quality.ablation``: what each term of the cost is worth, by taking it out.

Unallocated GPU % at 100 % demand and allocated at 95 %, on the tuning seed and the workloads that parameters were tuned
on; ``WORKLOADS`` and ``SEEDS`` choose others. A term is taken out by a weight of 0, for numpy and for the helper.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import numpy as np

from benchmarks.quality.data import chosen_seeds, folder, listed
from benchmarks.quality.runs import Run, run
from benchmarks.results import Row, show
from scoring import native
from scoring.policies import foresight, scarcity

WORKLOADS = ("default", "gpushare60", "cpu200", "gpuspec33", "multigpu30")
SEEDS = (1000,)
TERMS: dict[str, tuple[ModuleType, str] | None] = {
    "all": None,
    "no fragmentation": (foresight, "FRAGMENTATION"),
    "no CPU shortage": (foresight, "CPU_SHORTAGE"),
    "no worth of rests": (foresight, "WORTH"),
    "no slots": (scarcity, "SLOTS"),
    "no scarce kinds": (scarcity, "KINDS"),
}


@contextmanager
def without(term: str) -> Iterator[None]:
    """Give the term a weight of 0 for the length of the block."""
    found = TERMS[term]
    if found is None:
        yield
        return
    module, name = found
    kept = getattr(module, name)
    for each in (module, native):
        setattr(each, name, np.float32(0))
    try:
        yield
    finally:
        for each in (module, native):
            setattr(each, name, kept)


def measure(workload: str, term: str, seeds: list[int]) -> Row:
    """Return the means over seeds of one workload without one term."""
    with without(term):
        outcomes = [run(Run(folder(), workload, "binpack", seed)) for seed in seeds]
    unallocated = round(100 - statistics.fmean(each.allocated[100] for each in outcomes), 2)
    print(f"{workload}, {term}: {unallocated} % unallocated", file=sys.stderr, flush=True)
    return {
        "workload": workload,
        "term": term,
        "seeds": len(seeds),
        "unallocated_percent": unallocated,
        "allocated_at_95": round(statistics.fmean(each.allocated[95] for each in outcomes), 1),
    }


def main() -> int:
    """Run every workload without every term and print the table."""
    workloads = listed("WORKLOADS") or list(WORKLOADS)
    seeds = chosen_seeds(*SEEDS)
    show("quality-ablation", [measure(workload, term, seeds) for workload in workloads for term in TERMS])
    return 0


if __name__ == "__main__":
    sys.exit(main())
