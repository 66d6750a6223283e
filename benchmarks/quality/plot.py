"""``python -m benchmarks.quality.plot``: allocated against demand, one curve a policy, as SVG for the docs.

``WORKLOADS`` and ``SEEDS`` (one) choose; the pictures go to ``docs/images``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.quality.data import chosen_seeds, folder, listed
from benchmarks.quality.runs import Run, run

IMAGES = Path(__file__).parents[2] / "docs" / "images"
POLICIES = {"BestFit": "BestFit", "FGD": "FGD (fixed order of ties)", "binpack": "binpack, the default"}
FIRST_PERCENT = 80


def main() -> int:
    """Draw each workload's picture and say where it is."""
    mpl.rcParams["svg.hashsalt"] = "tangram"
    for workload in listed("WORKLOADS") or ["default", "gpuspec33"]:
        for seed in chosen_seeds(43):
            curves = {name: run(Run(folder(), workload, policy, seed)).allocated for policy, name in POLICIES.items()}
            path = IMAGES / f"placement-{workload}.svg"
            draw(workload, seed, curves).savefig(path, metadata={"Date": None})
            sys.stdout.write(f"{path}: { ({name: round(curve[100], 2) for name, curve in curves.items()}) }\n")
    return 0


def draw(workload: str, seed: int, curves: dict[str, dict[int, float]]) -> Figure:
    """Return a figure of allocated GPUs against arrived demand, in per cent of the cluster's GPUs."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for name, curve in curves.items():
        points = sorted(at for at in curve if at >= FIRST_PERCENT)
        axes.plot(points, [curve[at] for at in points], label=name)
    axes.plot([FIRST_PERCENT, 100], [FIRST_PERCENT, 100], color="grey", linewidth=0.8, linestyle=":", label="all of it")
    axes.set(
        xlabel="GPU demand arrived, % of the cluster", ylabel="allocated, %", title=f"openb {workload}, seed {seed}"
    )
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    return figure


if __name__ == "__main__":
    sys.exit(main())
