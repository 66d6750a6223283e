"""Tables of the docs, as rows by column."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def rows(document: str, *columns: str) -> list[dict[str, str]]:
    """Return the rows of the document's table whose first columns have these names."""
    lines = (DOCS / document).read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else [] for line in lines]
    start = next(at for at, row in enumerate(cells) if tuple(row[: len(columns)]) == columns)
    found = []
    for row in cells[start + 2 :]:
        if not row:
            break
        found.append(dict(zip(cells[start], row, strict=True)))
    return found
