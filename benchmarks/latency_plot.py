"""``python -m benchmarks.latency_plot [FILE]``: latency against nodes, as SVG for the docs.

``FILE`` holds rows of ``benchmarks.latency``, by default those of its last run; drawn are the quiet ones, closed loop,
with the helper. The picture goes to ``docs/images/latency.svg``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.results import RESULTS

IMAGE = Path(__file__).parents[1] / "docs" / "images" / "latency.svg"
CURVES = {"pair": "filter and prioritize", "filter": "filter", "bind": "bind, the API server's answer included"}

Rows = Sequence[dict[str, Any]]


def main(arguments: Sequence[str]) -> int:
    """Draw the picture and say where it is."""
    mpl.rcParams["svg.hashsalt"] = "tangram"
    path = Path(arguments[0]) if arguments else RESULTS / "latency.json"
    draw(json.loads(path.read_text())).savefig(IMAGE, metadata={"Date": None})
    sys.stdout.write(f"{IMAGE}\n")
    return 0


def draw(rows: Rows) -> Figure:
    """Return a figure of medians against nodes, both axes logarithmic; the floor is that of the pair."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    chosen = [row for row in rows if (row["mode"], row["load"], row["helper"]) == ("closed", "quiet", True)]
    for verb, name in CURVES.items():
        of_verb = sorted((row["nodes"], row["p50_ms"]) for row in chosen if row["verb"] == verb)
        axes.plot(*zip(*of_verb, strict=True), marker="o", label=name)
    floor = sorted((row["nodes"], row["floor_p50_ms"]) for row in chosen if row["verb"] == "pair")
    axes.plot(*zip(*floor, strict=True), color="grey", linestyle=":", marker=".", label="the floor of the pair")
    axes.set(xscale="log", yscale="log", xlabel="nodes of 8 devices", ylabel="median, ms")
    nodes = sorted({row["nodes"] for row in chosen})
    axes.set_xticks(nodes, [f"{each:,}" for each in nodes])
    axes.minorticks_off()
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    return figure


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
