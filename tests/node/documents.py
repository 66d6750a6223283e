"""Tables in the documentation that tests make: what stands there is what was seen, or the test fails."""

import os
from pathlib import Path

import pytest

_DOCS = Path(__file__).parents[2] / "docs"


class Table:
    """One table between two comments of a page; `rows` says how many a whole run adds."""

    def __init__(self, page: str, maker: str, head: tuple[str, ...], *, rows: int) -> None:
        self._page, self._maker = page, maker
        self._lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
        self._rows = rows

    def add(self, *cells: str) -> None:
        """Add a row."""
        self._lines.append(f"| {' | '.join(cells)} |")

    def check(self) -> None:
        """Compare with the page, or write it when WRITE_DOCS is set; without all rows there is nothing to compare."""
        if len(self._lines) != self._rows + 2:
            return
        text = "".join(f"{line}\n" for line in self._lines)
        if os.environ.get("WRITE_DOCS"):
            write_between(self._page, self._maker, text)
        assert read_between(self._page, self._maker) == text, "make test-node WRITE_DOCS=1"


def read_between(page: str, maker: str) -> str:
    """Return what stands between the comments that name a test."""
    return _parted(page, maker)[2]


def write_between(page: str, maker: str, text: str) -> None:
    """Write anew what stands between the comments that name a test."""
    before, start, _, end, after = _parted(page, maker)
    (_DOCS / page).write_text("".join((before, start, text, end, after)), encoding="utf-8")


def _parted(page: str, maker: str) -> tuple[str, str, str, str, str]:
    text = (_DOCS / page).read_text(encoding="utf-8")
    before, start, rest = text.partition(f"<!-- made by {maker} -->\n")
    inside, end, after = rest.partition(f"<!-- end of what {maker} made -->\n")
    if not start or not end:
        pytest.fail(f"{page} has no place for what {maker} makes")
    return before, start, inside, end, after
