"""Where Debian's Prometheus is; a machine without it skips, CI does not."""

from __future__ import annotations

import os
import shutil

import pytest


def prometheus() -> str:
    """Return the path of ``prometheus``; skip without it, fail in CI."""
    return _found("prometheus")


def promtool() -> str:
    """Return the path of ``promtool``; skip without it, fail in CI."""
    return _found("promtool")


def _found(name: str) -> str:
    path = shutil.which(name)
    if path is None and os.environ.get("CI"):
        pytest.fail(f"{name} is missing; `apt-get install prometheus` brings it")
    if path is None:
        pytest.skip(f"needs {name}, from the Debian package prometheus")
    return path
