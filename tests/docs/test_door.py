"""Every attack in docs/door.md names tests that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [line for line in (ROOT / "docs" / "door.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")][
    1:
]
SOURCES = "".join(
    path.read_text(encoding="utf-8")
    for pattern in ("controlplane/test_policies*.py", "controlplane/test_admission*.py")
    for path in sorted((ROOT / "tests").glob(pattern))
)


def test_there_is_a_row_for_each_attack() -> None:
    assert len(ROWS) >= 15


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_row_names_tests_that_exist(row: str) -> None:
    shown = row.split("|")[3]
    names = re.findall(r"\b(test_\w+)(?!\w*\.py)\b", shown)
    files = re.findall(r"(tests/\S+\.py)", shown)
    assert names or files
    assert all(f"def {name}(" in SOURCES for name in names if f"{name}.py" not in shown)
    assert all((ROOT / path).exists() for path in files)
