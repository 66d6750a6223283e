"""Where the trace lies, and what the environment chooses to run."""

from __future__ import annotations

import os
from pathlib import Path

_COPY = Path(__file__).parents[2] / "extender" / "simulation" / "data" / "openb"


def folder() -> Path:
    """Return the folder of the trace: ``OPENB_DATA``, or the project's own copy."""
    return Path(os.environ.get("OPENB_DATA") or _COPY)


def listed(name: str) -> list[str]:
    """Return the parts of an environment variable, separated by commas; empty when it is not set."""
    return [part for part in os.environ.get(name, "").split(",") if part]


def chosen_seeds(*usual: int) -> list[int]:
    """Return what ``SEEDS`` lists, else the usual seeds."""
    return [int(seed) for seed in listed("SEEDS")] or list(usual)


def chosen_loads(*usual: float) -> list[float]:
    """Return what ``LOAD`` lists, else the usual loads."""
    return [float(load) for load in listed("LOAD")] or list(usual)


def has(data: Path, workload: str) -> bool:
    """Return whether a pod list is there."""
    return (data / f"openb_pod_list_{workload}.csv.gz").exists()
