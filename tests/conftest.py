"""Settings of the whole suite: hypothesis without deadlines, since machines that run it are shared.

Where several workers share the tests (``--dist loadgroup``), a module stays with one, and so does the real node.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("default", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True, print_blob=True)
settings.register_profile("long", parent=settings.get_profile("default"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default"))

_NODE = Path(__file__).parent / "node"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group tests that share what is slow to start: those of one module, and all that need the real node."""
    for item in items:
        group = "node" if item.path.is_relative_to(_NODE) else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
