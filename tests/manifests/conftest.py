"""Whatever renders the chart needs helm, which is built with Go."""

import os
from collections.abc import Sequence

import pytest

from tests.controlplane.build import GoMissing, ensure


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Mark every test that renders, before `-m` selects by marker."""
    for item in items:
        if "helm" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.controlplane)


@pytest.fixture(scope="session")
def helm() -> None:
    """Build helm, or take it from the cache."""
    try:
        ensure("helm")
    except GoMissing as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))
