"""Settings of the whole suite: hypothesis without deadlines, since machines that run it are shared.

Where several workers share the tests (``--dist loadfile``), a module stays with one, and so does all that needs the
real node.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

settings.register_profile("default", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True, print_blob=True)
settings.register_profile("long", parent=settings.get_profile("default"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default"))

_NODE = "tests/node/"


class Scheduling(LoadFileScheduling):
    """One worker for each module, and one for the real node, which takes half a minute to come up."""

    def _split_scope(self, nodeid: str) -> str:
        return _NODE if nodeid.startswith(_NODE) else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Take our own scheduling in the place of ``loadfile``."""
    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None
