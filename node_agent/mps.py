"""NVIDIA's MPS control daemon, on the devices that the operator put into mode ``mps``: started, set up, watched.

One daemon a device, each with a pipe directory of its own, so that a fault on one does not end the others' clients.
Defaults are set in the daemon per device, because what a client sets for itself it can also raise (node-side.md 3.3).
"""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

logger = logging.getLogger(__name__)

_COMMAND_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class MpsDevice:
    """A device to serve; ``default_memory_mib`` and ``default_percent`` bound a client that sets nothing itself."""

    uuid: str
    default_memory_mib: int | None = None
    default_percent: int | None = None


@dataclass(slots=True)
class _Daemon:
    device: MpsDevice
    ready: bool = False
    restart_due_s: float = 0.0
    failures: int = 0
    check_due_s: float = 0.0
    log: list[str] = field(default_factory=list)


class MpsWatch:
    """Keeps the daemons running. ``step`` is called once a sweep and does at most one slow thing a device."""

    def __init__(
        self,
        root: Path,
        control: str,
        devices: Sequence[MpsDevice],
        clock: Callable[[], float] = time.monotonic,
        check_s: float = 10.0,
    ) -> None:
        self._root = root
        self._control = control
        self._clock = clock
        self._check_s = check_s
        self._daemons = {device.uuid: _Daemon(device) for device in devices}

    def uuids(self) -> frozenset[str]:
        """Return the devices in mode mps."""
        return frozenset(self._daemons)

    def not_ready(self) -> frozenset[str]:
        """Return the devices whose daemon does not answer."""
        return frozenset(uuid for uuid, daemon in self._daemons.items() if not daemon.ready)

    def step(self) -> None:
        """Ask each daemon whether it lives; start the dead ones, with a pause that grows after each failure."""
        now_s = self._clock()
        for daemon in self._daemons.values():
            if now_s < daemon.check_due_s or now_s < daemon.restart_due_s:
                continue
            daemon.check_due_s = now_s + self._check_s
            daemon.ready = self._answers(daemon) or self._start(daemon)
            if daemon.ready:
                daemon.failures = 0
            else:
                daemon.failures += 1
                daemon.restart_due_s = now_s + min(60.0, 2.0**daemon.failures)

    def close(self) -> None:
        """Ask every daemon to quit: its clients end with it, so only when the operator takes the mode away."""
        for daemon in self._daemons.values():
            self._say(daemon, "quit")
            daemon.ready = False

    def pipe_directory(self, uuid: str) -> Path:
        """Return where clients of a device find its daemon."""
        return self._root / uuid / "pipe"

    def _answers(self, daemon: _Daemon) -> bool:
        return self._say(daemon, "get_server_list") is not None

    def _start(self, daemon: _Daemon) -> bool:
        for name in ("pipe", "log"):
            (self._root / daemon.device.uuid / name).mkdir(parents=True, exist_ok=True)
        if self._run([self._control, "-d"], daemon, None) is None:
            return False
        device = daemon.device
        commands = []
        if device.default_memory_mib is not None:
            commands.append(f"set_default_device_pinned_mem_limit 0 {device.default_memory_mib}M")
        if device.default_percent is not None:
            commands.append(f"set_default_active_thread_percentage {device.default_percent}")
        return all(self._say(daemon, command) is not None for command in commands) and self._answers(daemon)

    def _say(self, daemon: _Daemon, command: str) -> str | None:
        return self._run([self._control], daemon, command + "\n")

    def _run(self, arguments: list[str], daemon: _Daemon, words: str | None) -> str | None:
        try:
            done = subprocess.run(  # noqa: S603 - the operator's own binary
                arguments,
                input=words,
                stdin=subprocess.DEVNULL if words is None else None,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_COMMAND_TIMEOUT_S,
                check=False,
                env=self._environ(daemon.device.uuid),
            )
        except (OSError, subprocess.TimeoutExpired) as problem:
            logger.warning("mps %s: %s", daemon.device.uuid, problem)
            return None
        if done.returncode != 0:
            logger.warning("mps %s: status %d: %s", daemon.device.uuid, done.returncode, done.stdout[:200].strip())
            return None
        return done.stdout

    def _environ(self, uuid: str) -> Mapping[str, str]:
        return {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": uuid,
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe_directory(uuid)),
            "CUDA_MPS_LOG_DIRECTORY": str(self._root / uuid / "log"),
        }


def parse_mps_devices(text: str) -> list[MpsDevice]:
    """Read ``GPU-…[=memory MiB[:per cent]], …``; raise ValueError naming the entry that cannot be read."""
    found = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        uuid, _, limits = entry.partition("=")
        memory, _, percent = limits.partition(":")
        if not uuid.startswith("GPU-") or not all(each == "" or each.isdecimal() for each in (memory, percent)):
            raise ValueError(f"mps_devices: {entry!r}, valid: GPU-<uuid>[=<default MiB>[:<default per cent>]]")
        if percent and not 1 <= int(percent) <= 100:
            raise ValueError(f"mps_devices: {entry!r}: per cent must be 1 to 100")
        found.append(MpsDevice(uuid, int(memory) if memory else None, int(percent) if percent else None))
    return found
