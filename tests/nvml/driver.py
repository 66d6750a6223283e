"""The stub driver for tests: compiled once a session, one scenario file a test."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from node_agent.readings import Readings
from node_agent.supervisor import Supervisor, SupervisorTimes

TIMES = SupervisorTimes(patience_s=15.0, deadline_s=20.0, restart_s=0.05, restart_limit_s=0.2, probe_s=0.1)
IMPATIENT = SupervisorTimes(
    patience_s=0.2, deadline_s=0.6, start_deadline_s=4.0, restart_s=0.05, restart_limit_s=0.1, probe_s=0.1
)

SOURCE = Path(__file__).with_name("stub.c")
SONAME = "libnvidia-ml.so.1"


def compiler() -> str | None:
    """Return a C compiler, None where the machine has none."""
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


def compile_stub(directory: Path, *flags: str) -> Path:
    """Compile the stub into a directory of its own, under the name that the loader looks for."""
    directory.mkdir(parents=True, exist_ok=True)
    found = compiler()
    assert found is not None
    subprocess.run(
        [
            *(found, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", f"-Wl,-soname,{SONAME}", *flags),
            *("-o", str(directory / SONAME), str(SOURCE), "-lpthread"),
        ],
        check=True,
        capture_output=True,
    )
    return directory


class Driver:
    """A scenario that can change while the driver is in use. Later settings of a key win."""

    def __init__(self, library_directory: Path, scenario: Path) -> None:
        self.library_directory = library_directory
        self.scenario = scenario
        self._lines: dict[str, str] = {}
        self._events: list[str] = []
        self._announced = 0
        self.set(count=1)

    def set(self, settings: dict[str, object] | None = None, **simple: object) -> None:
        """Change keys; None takes a key back."""
        for key, value in {**(settings or {}), **simple}.items():
            if value is None:
                self._lines.pop(key, None)
            else:
                self._lines[key] = str(value)
        self._write()

    def device(self, index: int, settings: dict[str, object] | None = None, **simple: object) -> None:
        """Change keys of one device."""
        self.set({f"device.{index}.{key}": value for key, value in {**(settings or {}), **simple}.items()})

    def announce(self, index: int, xid: int, gi: int = -1, ci: int = -1) -> None:
        """Let the driver announce an XID, seen in a GPU and compute instance where those are given."""
        self._announced += 1
        self._events.append(f"event {self._announced} {index} {xid} {gi} {ci}")
        self._write()

    def forget_events(self) -> None:
        """Announce what was announced to no process that comes later: a driver does not repeat itself."""
        self._events.clear()
        self._write()

    def announce_layout_change(self, index: int) -> None:
        """Let the driver announce that MIG instances were made or taken apart."""
        self.announce(index, -0x100)

    def environ(self) -> dict[str, str]:
        """Return the environment in which a process finds this driver."""
        return {
            **os.environ,
            "LD_LIBRARY_PATH": str(self.library_directory),
            "TANGRAM_NVML_SCENARIO": str(self.scenario),
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }

    def _write(self) -> None:
        lines = [f"{key} {value}" for key, value in self._lines.items()] + self._events
        fresh = self.scenario.with_suffix(".new")
        fresh.write_bytes(("\n".join(lines) + "\n").encode("utf-8", errors="surrogateescape"))
        fresh.replace(self.scenario)


def until(supervisor: Supervisor, condition: Callable[[Readings], bool], timeout_s: float = 20.0) -> Readings:
    """Read until the condition holds; fail the test where it never does."""
    end_s = time.monotonic() + timeout_s
    while time.monotonic() < end_s:
        readings = supervisor.read()
        if condition(readings):
            return readings
        time.sleep(0.02)
    pytest.fail(f"never came: last state {readings.state}, {readings.message}")
