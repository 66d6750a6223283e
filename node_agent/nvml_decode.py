"""Reads the structs that the binding hands out into values of ours: units, sentinels, rows that cannot be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from node_agent.nvml_outcome import BINDING_PROBLEM, Kind, Outcome

MIB = 1024 * 1024
MAX_PID = 4_194_304
"""The largest pid that Linux can give; larger ones come from a process struct that the driver laid out differently."""

FABRIC_COMPLETED = 3

SHARED_WITH_HOST = frozenset({(5, 3), (6, 2), (7, 2), (8, 7), (11, 0), (12, 1)})
"""Compute capabilities of chips whose memory is the host's: Jetson, and GB10 (12.1) (node-side.md 2.1, 2.2)."""

_CORES_PER_SM = {(6, 0): 64, (7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64, 3: 192}
_CORES_PER_SM_ELSE = 128


@dataclass(frozen=True, slots=True)
class Memory:
    """MiB; total rounded down, the others up. ``reserved_mib`` is None where the driver (before R510) does not tell."""

    total_mib: int
    used_mib: int
    reserved_mib: int | None


@dataclass(frozen=True, slots=True)
class Process:
    """One row of a process list; memory None where the driver hides it."""

    pid: int
    memory_mib: int | None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that the driver announced; ``xid`` is None for changes of layout or availability."""

    uuid: str
    xid: int | None
    gi_id: int | None
    ci_id: int | None


def mapped(outcome: Outcome[Any], change: Callable[[Any], Any]) -> Outcome[Any]:
    """Apply a decoder to a value; a struct that the decoder cannot read is a transient failure."""
    if outcome.kind is not Kind.VALUE:
        return outcome
    try:
        return Outcome(Kind.VALUE, change(outcome.value))
    except (AttributeError, TypeError, ValueError, IndexError):
        return Outcome(Kind.TRANSIENT, code=BINDING_PROBLEM)


def text(raw: bytes | str) -> str:
    """Accept bytes and str alike: the binding changed from one to the other."""
    return raw.decode("utf-8", errors="replace") if isinstance(raw, bytes) else str(raw)


def ratio(per_cent: float) -> float | None:
    """Turn per cent into 0..1; NVML at times answers 4294967295 or thousands, which is no load at all."""
    return per_cent / 100 if 0 <= per_cent <= 100 else None


def memory_of(raw: Any) -> Memory:  # noqa: ANN401 - a ctypes struct
    """Read either memory struct."""
    reserved = getattr(raw, "reserved", None)
    used_mib = -(-int(raw.used) // MIB)
    total_mib = int(raw.total) // MIB
    return Memory(total_mib, min(used_mib, total_mib), None if reserved is None else -(-int(reserved) // MIB))


def processes_of(rows: Iterable[Any]) -> list[Process]:
    """Read a process list; impossible pids are rows of a struct that the driver laid out differently."""
    return [
        Process(int(row.pid), None if row.usedGpuMemory is None else -(-int(row.usedGpuMemory) // MIB))
        for row in rows
        if 0 < row.pid <= MAX_PID
    ]


def sm_time(samples: Iterable[Any], since_us: int) -> tuple[dict[int, float], int]:
    """Read utilisation samples into (share by pid, newest timestamp)."""
    newest_us, ratios = since_us, {}
    for sample in samples:
        newest_us = max(newest_us, int(sample.timeStamp))
        share = ratio(sample.smUtil)
        if 0 < sample.pid <= MAX_PID and share is not None:
            ratios[int(sample.pid)] = share
    return ratios, newest_us


def instance_id(raw: int) -> int | None:
    """Read an instance id, None outside MIG."""
    return None if raw == 0xFFFFFFFF else int(raw)


def fabric_of(info: Any) -> tuple[int, str]:  # noqa: ANN401 - a ctypes struct
    """Read the fabric struct into (state, clique)."""
    cluster = bytes(info.clusterUuid)
    if info.state != FABRIC_COMPLETED or not any(cluster):
        return int(info.state), ""
    digits = cluster.hex()
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return int(info.state), f"{'-'.join(parts)}.{int(info.cliqueId)}"


def field_value(field: Any) -> int:  # noqa: ANN401 - a ctypes struct
    """Read the union of a field by the type that the field names."""
    names = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
    return int(getattr(field.value, names.get(field.valueType, "uiVal")))


def sm_count_of(cores: int | None, capability: tuple[int, int] | None) -> int | None:
    """Divide cores by cores per SM (node-side.md 1.5, cores)."""
    if not cores or capability is None:
        return None
    per_sm = _CORES_PER_SM.get(capability) or _CORES_PER_SM.get(capability[0], _CORES_PER_SM_ELSE)
    return cores // per_sm
