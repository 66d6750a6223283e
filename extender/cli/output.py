"""Prints results: JSON for programs, tables and lines for people. Nothing from a cluster can control the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

_WIDE = 200


def print_json(value: object) -> None:
    """Print a value as JSON, two blanks a level."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_lines(lines: Iterable[str]) -> None:
    """Print lines as they are, without what would move the cursor or change colours."""
    for line in lines:
        sys.stdout.write(plain(line) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; a column whose name begins with ``>`` is aligned to the right. Not cut when it is piped."""
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False)
    console.print(_table(columns, rows))


def plain(text: str) -> str:
    """Return a text without control characters."""
    return "".join(character for character in text if character.isprintable())


def clock_time(seconds: float) -> str:
    """Return seconds since 1970 as local date and time."""
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%m-%d %H:%M:%S")


def percent(part: float | None, whole: float = 1.0) -> str:
    """Return a part of a whole in per cent, ``-`` where it is not known."""
    return "-" if part is None or not whole else f"{100 * part / whole:.0f}%"


def mib(amount: float | None) -> str:
    """Return MiB as GiB with one decimal, ``-`` where they are not known."""
    return "-" if amount is None else f"{amount / 1024:.1f}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name.removeprefix(">"), justify="right" if name.startswith(">") else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    return table
