from __future__ import annotations

import re

import pytest

from tests.docs.tables import DOCS

ROOT = DOCS.parent
NAMED = sorted(
    set(
        re.findall(
            r"`((?:scoring|extender|node_agent|tests|manifests)/[\w./*-]*)`", (DOCS / "architecture.md").read_text()
        )
    )
)


@pytest.mark.parametrize("path", NAMED)
def test_what_the_map_names_exists(path: str):
    assert list(ROOT.glob(path.rstrip("/"))), path
