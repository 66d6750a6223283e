"""A report's body as a value that can be believed: decoded, and every amount within what hardware can have.

What a driver gets wrong all the time (utilisation of 4294967295 or 250) is "unknown", not an error. What cannot be
meant at all refuses the whole report, so that the node keeps its last good one.

Agents may be one version older or newer, since a roll-out moves one node after the other: a version only adds fields,
what an older agent leaves out is "not known", and what a newer one adds is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from extender.errors import InvalidReport
from node_agent.report import SCHEMA_VERSION, Device, Health, Mode, NodeState, Owner, PluginResource, Report

MAX_DEVICES = 128
MAX_USAGE = 4096
MAX_REPLICAS = 65_536
MAX_TEXT = 256
MAX_WORDS = 4096
"""Characters of what is told in words: a fault, a message."""
MAX_MEMORY_MIB = 16_777_216
_MAX_INT16 = 32_767
_MILLI = 1000
OLDEST, NEWEST = max(1, SCHEMA_VERSION - 1), SCHEMA_VERSION + 1

_DECODER = msgspec.json.Decoder(Report)
_EXPECTED = re.compile(r"Expected (.+?), got (.+)")
_CHOICES: dict[str, type[StrEnum]] = {"state": NodeState, "health": Health, "owner": Owner, "mode": Mode}


def read_report(body: bytes) -> Report:
    """Return the report in a body; raise InvalidReport for the first thing in it that cannot be meant."""
    report = decode_report(body)
    check_report(report)
    return report


def decode_report(body: bytes) -> Report:
    """Return what a body says, its amounts unchecked; raise InvalidReport where it is no report."""
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _undecodable(str(error)) from error


def check_report(report: Report) -> None:
    """Raise InvalidReport for the first amount that cannot be meant."""
    check_what_moves(report)
    _check_head(report)
    for number, device in enumerate(report.devices):
        if not _is_plain(device):
            _check_device(f"$.devices[{number}]", device)
    if len({device.uuid for device in report.devices}) < len(report.devices):
        _check_unique(device.uuid for device in report.devices)


def check_what_moves(report: Report) -> None:
    """Raise InvalidReport for an amount outside the steady part of a report (``steady``) that cannot be meant."""
    _check_range("$.sequence", report.sequence, 0, 2**63 - 1)
    if len(report.usage) > MAX_USAGE:
        raise InvalidReport("$.usage", f"{len(report.usage)} entries", f"at most {MAX_USAGE}")


def known_utilisation(device: Device) -> float | None:
    """Return utilisation as 0..1, None where the driver says nothing or nonsense."""
    value = device.utilisation
    return value if value is not None and 0 <= value <= 1 else None  # NaN is in no range.


def _check_head(report: Report) -> None:
    _check_range("$.version", report.version, OLDEST, NEWEST)
    _check_text("$.node", report.node)
    _check_text("$.agent_run", report.agent_run)
    for name in ("driver", "cuda", "agent_version"):
        _check_length(f"$.{name}", getattr(report, name), MAX_TEXT)
    _check_length("$.message", report.message, MAX_WORDS)
    if len(report.devices) > MAX_DEVICES:
        raise InvalidReport("$.devices", f"{len(report.devices)} devices", f"at most {MAX_DEVICES}")
    _check_plugin(report.plugin)


def _check_plugin(plugin: Sequence[PluginResource]) -> None:
    if len(plugin) > MAX_DEVICES:
        raise InvalidReport("$.plugin", f"{len(plugin)} resources", f"at most {MAX_DEVICES}")
    for number, each in enumerate(plugin):
        path = f"$.plugin[{number}]"
        _check_text(f"{path}.resource", each.resource)
        _check_range(f"{path}.replicas", each.replicas, 0, MAX_REPLICAS)
        _check_range(f"{path}.used", each.used, 0, MAX_REPLICAS)
        if len(each.uuids) > MAX_DEVICES:
            raise InvalidReport(f"{path}.uuids", f"{len(each.uuids)} devices", f"at most {MAX_DEVICES}")


def _is_plain(device: Device) -> bool:
    """Return whether a device is beyond doubt, as nearly all are; the careful check then has nothing to find."""
    numa, link = device.numa_node, device.link_group
    return (
        device.mig is None
        and 0 < len(device.uuid) <= MAX_TEXT
        and len(device.name) + len(device.fault) + len(device.pci_bus_id) + len(device.fabric_clique) <= MAX_TEXT
        and 0 <= device.total_mib <= MAX_MEMORY_MIB
        and 0 <= device.reserved_mib <= MAX_MEMORY_MIB
        and 0 <= device.foreign_mib <= MAX_MEMORY_MIB
        and 0 <= device.sm_milli <= _MILLI
        and (numa is None or -1 <= numa <= _MAX_INT16)
        and (link is None or -1 <= link <= _MAX_INT16)
    )


def _check_device(path: str, device: Device) -> None:
    _check_text(f"{path}.uuid", device.uuid)
    for name in ("name", "pci_bus_id", "fabric_clique"):
        _check_length(f"{path}.{name}", getattr(device, name), MAX_TEXT)
    _check_length(f"{path}.fault", device.fault, MAX_WORDS)
    for name in ("total_mib", "reserved_mib", "foreign_mib"):
        _check_range(f"{path}.{name}", getattr(device, name), 0, MAX_MEMORY_MIB)
    _check_range(f"{path}.sm_milli", device.sm_milli, 0, _MILLI)
    for name in ("numa_node", "link_group"):
        value = getattr(device, name)
        if value is not None:
            _check_range(f"{path}.{name}", value, -1, _MAX_INT16)
    if device.mig is not None:
        _check_text(f"{path}.mig.profile", device.mig.profile)
        _check_text(f"{path}.mig.parent_uuid", device.mig.parent_uuid)


def _check_text(field: str, text: str) -> None:
    if not 0 < len(text) <= MAX_TEXT:
        raise InvalidReport(field, f"{len(text)} characters", f"1 to {MAX_TEXT} characters")


def _check_length(field: str, text: str, most: int) -> None:
    if len(text) > most:
        raise InvalidReport(field, f"{len(text)} characters", f"at most {most} characters")


def _check_range(field: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidReport(field, str(value), f"{low} to {high}")


def _check_unique(uuids: Iterable[str]) -> None:
    seen: set[str] = set()
    for uuid in uuids:
        if uuid in seen:
            raise InvalidReport("$.devices", f"{uuid!r} twice", "each device once")
        seen.add(uuid)


def _undecodable(message: str) -> InvalidReport:
    problem, _, path = message.partition(" - at `")
    field = path.rstrip("`") or "$"
    expected = _EXPECTED.fullmatch(problem)
    if expected is not None:
        return InvalidReport(field, expected[2].strip("`"), expected[1].strip("`"))
    choices = _CHOICES.get(field.rpartition(".")[2])
    if choices is not None:
        return InvalidReport(field, problem, ", ".join(choices))
    return InvalidReport(field, problem, f"a report of version {SCHEMA_VERSION}")
