"""A machine that cannot carry a node says which right or tool it lacks."""

from pathlib import Path

import pytest

from tests.node import bringup, machine
from tests.node.doorway import Doorway


def test_missing_tool_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bringup, "compiler", lambda: "cc")
    monkeypatch.setattr(machine, "_TOOLS", ("unshare", "no-such-tool"))
    assert bringup.missing().endswith("there is no no-such-tool on PATH")


def test_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bringup, "compiler", lambda: None)
    assert "no cc, gcc or clang" in bringup.missing()


def test_missing_right_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_SYSTEM_ADMINISTRATION", 63)  # a bit that no kernel gives
    monkeypatch.setattr(machine, "_TOOLS", ())
    with pytest.raises(machine.MachineMissing, match="CAP_SYS_ADMIN"):
        machine.check_rights()


def test_doorway_into_a_network_that_is_gone_says_so() -> None:
    with pytest.raises(FileNotFoundError, match="/proc/0/ns/net"):
        Doorway(0)
