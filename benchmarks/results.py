"""How a benchmark shows and keeps its rows: a table for people, JSON for machines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"

Row = Mapping[str, str | int | float | bool | None]


def show(name: str, rows: Sequence[Row]) -> Path:
    """Print the rows as a table and write them to ``benchmarks/results/NAME.json``; return where."""
    table = Table(title=name)
    columns = list(rows[0]) if rows else []
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(_text(row[column]) for column in columns))
    Console(width=max(120, 12 * len(columns))).print(table)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(list(rows), indent=1) + "\n")
    return path


def _text(value: str | float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def quantile(values: Sequence[float], part: float) -> float:
    """Return the value below which ``part`` (0..1) of the values lie; nearest rank."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(part * len(ranked)))]
