"""``make quality-guard``: fails where placement on the trace has got worse than it was; minutes.

Two seeds of two workloads through the product's own code, against the figures recorded here. Whoever changes them says
why in the same commit.
"""

from __future__ import annotations

import statistics
import sys

from benchmarks.quality.data import folder
from benchmarks.quality.runs import Run, run

RECORDED = {"default": 3.76, "gpuspec33": 4.4}
"""Unallocated GPU % at 100 % demand."""

WORSE_BY = 0.3
SEEDS = (42, 43)


def main() -> int:
    """Run, print, and return 1 where a workload got worse by more than ``WORSE_BY``."""
    failed = 0
    for workload, recorded in RECORDED.items():
        runs = [run(Run(folder(), workload, "binpack", seed)) for seed in SEEDS]
        found = statistics.fmean(100 - outcome.allocated[100] for outcome in runs)
        worse = found > recorded + WORSE_BY
        failed += worse
        print(f"{workload}: {found:.2f} % unallocated, recorded {recorded:.2f}{': WORSE' if worse else ''}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
