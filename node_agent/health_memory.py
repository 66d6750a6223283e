"""What of the health history outlives the agent's process: a small file, void after a reboot.

XIDs are announced once and asked for never again, so an agent that was restarted (an upgrade, an eviction) would offer
a device that it had taken out minutes before. The file belongs into a directory of the host that is empty after a boot
(``/run``); it names the boot besides, because operators put files anywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec

from node_agent.health_rules import Action
from node_agent.report import Health

logger = logging.getLogger(__name__)


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """One device that was not healthy; ``energy_mj`` tells a reset that happened while nobody looked."""

    state: Health
    fault: str
    action: Action
    probation_s: float
    energy_mj: int | None = None


class _Content(msgspec.Struct, frozen=True, kw_only=True):
    boot_id: str
    devices: dict[str, Remembered]


class HealthMemory:
    """Reads the file at start, writes it when the content changes; trouble with it is logged, not fatal."""

    def __init__(self, path: Path, proc_root: Path = Path("/proc")) -> None:
        self._path = path
        self._boot_id = _boot_id(proc_root)
        self._written: dict[str, Remembered] | None = None
        self._is_broken = False

    def load(self) -> dict[str, Remembered]:
        """Return what was remembered in this boot; nothing where there is no file, or none that can be read."""
        try:
            content = msgspec.json.decode(self._path.read_bytes(), type=_Content)
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as problem:
            logger.warning("health file %s is not used: %s", self._path, problem)
            return {}
        return dict(content.devices) if content.boot_id == self._boot_id else {}

    def save(self, devices: Mapping[str, Remembered]) -> None:
        """Replace the file if anything else is to be remembered than before."""
        wanted = dict(devices)
        if wanted == self._written:
            return
        fresh = self._path.with_name(self._path.name + ".new")
        try:
            fresh.write_bytes(msgspec.json.encode(_Content(boot_id=self._boot_id, devices=wanted)))
            fresh.replace(self._path)
        except OSError as problem:
            if not self._is_broken:
                logger.warning("health file %s is not written: %s", self._path, problem)
            self._is_broken = True
            return
        self._written, self._is_broken = wanted, False


def _boot_id(proc_root: Path) -> str:
    try:
        return (proc_root / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
