"""Writes ``manifests/dashboards/*.json``: ``python -m scripts.dashboards``. Change a dashboard here, not there."""

from __future__ import annotations

import json
from pathlib import Path

from scripts.dashboards.cluster import CLUSTER
from scripts.dashboards.node import NODE
from scripts.dashboards.panels import Dashboard
from scripts.dashboards.scheduler import SCHEDULER
from scripts.dashboards.workload import WORKLOAD

TARGET = Path(__file__).parents[2] / "manifests/dashboards"
DASHBOARDS = (CLUSTER, NODE, WORKLOAD, SCHEDULER)


def render(dashboard: Dashboard) -> str:
    """Return a dashboard's file."""
    return json.dumps(dashboard.to_json(), indent=1) + "\n"


def main() -> None:
    """Write every dashboard."""
    for dashboard in DASHBOARDS:
        (TARGET / f"{dashboard.name}.json").write_text(render(dashboard), encoding="utf-8")


if __name__ == "__main__":
    main()
