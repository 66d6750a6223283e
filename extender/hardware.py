"""What is known of a node's devices, made from its agent's report.

A device that vanishes from the reports while somebody holds a share of it stays, out of use, with what was known of it:
totals never fall below what is booked, and the device gets its bookings back when it returns.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

import msgspec

from extender.intake import known_utilisation
from node_agent.report import Device, Health, Mode, NodeState, Owner, Report
from scoring.catalog import DeviceKind, device_kind
from scoring.fleet import DeviceState, ModeCode

_KINDS_REMEMBERED = 1024

GONE = "the agent no longer reports this device"
CLAIMED_TWICE = "Tangram and NVIDIA's device plugin both hand this device out"
CORDONED = "cordoned by the operator"


class Cause(StrEnum):
    """Why a device takes no new pods; NONE where it does."""

    NONE = "none"
    FAULT = "fault"
    LOST = "lost"
    CORDONED = "cordoned"
    CONTRADICTION = "contradiction"
    DRIVER = "driver"
    NOT_READY = "not-ready"
    NO_MEMORY = "no-memory"


@dataclass(frozen=True, slots=True)
class Standing:
    """What the extender knows of a node's devices beside the report: cordoned UUIDs, and UUIDs with bookings."""

    cordoned: Collection[str] = ()
    booked: Collection[str] = ()


NOTHING_KNOWN = Standing()


_STATES = {
    Health.HEALTHY: DeviceState.HEALTHY,
    Health.SUSPECT: DeviceState.SUSPECT,
    Health.OUT: DeviceState.OUT,
    Health.PROBATION: DeviceState.OUT,
    Health.LOST: DeviceState.OUT,
    Health.CORDONED: DeviceState.OUT,
}
_MODES = {Mode.TIME_SLICING: ModeCode.TIME_SLICING, Mode.MPS: ModeCode.MPS, Mode.MIG: ModeCode.MIG}
_DRIVER_TROUBLE = (NodeState.NO_DRIVER, NodeState.DRIVER_MISMATCH, NodeState.NO_ACCESS, NodeState.STALE)


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """One device as its agent reported it last. ``problem`` says in words why it takes no new pods, ``cause`` in one.

    A suspect device has a ``problem`` and no ``cause``: it takes pods.
    """

    uuid: str
    kind: DeviceKind
    state: DeviceState
    mode: ModeCode
    capacity_mib: int
    capacity_milli: int
    foreign_mib: int
    numa: int
    link: int
    health: Health
    problem: str = ""
    cause: Cause = Cause.NONE


class LoadAverage(msgspec.Struct, frozen=True, gc=False):
    """An exponential average of utilisation: 0..1 and when it was last fed, seconds.

    A struct, because one is made for every device of every report: a frozen dataclass takes five times as long.
    """

    value: float
    at: float


def devices_of(report: Report, standing: Standing = NOTHING_KNOWN) -> dict[str, DeviceFacts]:
    """Return the schedulable devices of a report by UUID, in its order; a split GPU offers its instances only."""
    return {
        device.uuid: _facts(device, report, standing)
        for device in report.devices
        if device.mig is not None or not device.mig_enabled
    }


def merged(
    before: Mapping[str, DeviceFacts], reported: Mapping[str, DeviceFacts], booked: Iterable[str], state: NodeState
) -> dict[str, DeviceFacts]:
    """Return the devices to keep: those reported, then vanished ones of which somebody holds a share, out of use.

    A driver in trouble makes every device vanish and none of them go: all stay, out of use.
    """
    kept = set(before) if state in _DRIVER_TROUBLE else set(booked)
    vanished = {
        uuid: replace(facts, state=DeviceState.OUT, health=Health.LOST, problem=GONE, cause=Cause.LOST)
        for uuid, facts in before.items()
        if uuid in kept and uuid not in reported
    }
    return {**reported, **vanished}


def averaged(
    before: Mapping[str, LoadAverage], report: Report, now: float, time_constant_s: float
) -> dict[str, LoadAverage]:
    """Return the load of each device whose utilisation is known, fed with this report."""
    averages = {}
    fed_at, weight = now, 0.0  # The devices of a node are nearly always fed together.
    for device in report.devices:
        utilisation = known_utilisation(device)
        if utilisation is None:
            continue
        start = before.get(device.uuid)
        if start is None:
            averages[device.uuid] = LoadAverage(utilisation, now)
            continue
        if start.at != fed_at:
            fed_at, weight = start.at, _weight(now - start.at, time_constant_s)
        averages[device.uuid] = LoadAverage(start.value + weight * (utilisation - start.value), now)
    return averages


def _weight(passed_s: float, time_constant_s: float) -> float:
    """Return what a sample counts in an exponential average: more, the longer the one before is ago."""
    return 1.0 - math.exp(-max(passed_s, 0.0) / time_constant_s)


def _facts(device: Device, report: Report, standing: Standing) -> DeviceFacts:
    cause, problem = _cause(device, report.state, standing)
    return DeviceFacts(
        uuid=device.uuid,
        kind=_kind(device, report),
        state=_STATES[device.health] if cause is Cause.NONE else DeviceState.OUT,
        mode=ModeCode.PLUGIN if device.owner is Owner.PLUGIN else _MODES[device.mode],
        capacity_mib=max(device.total_mib - device.reserved_mib, 0),
        capacity_milli=device.sm_milli,
        foreign_mib=device.foreign_mib,
        numa=-1 if device.numa_node is None else device.numa_node,
        link=-1 if device.link_group is None else device.link_group,
        health=device.health,
        problem=problem,
        cause=cause,
    )


def _kind(device: Device, report: Report) -> DeviceKind:
    profile = device.mig.profile if device.mig is not None else None
    capability = device.compute_capability or (0, 0)
    hardware = (device.name, device.architecture or 0, capability, device.total_mib, profile, device.sm_milli)
    return _known_kind(hardware, report.driver, report.cuda)


@lru_cache(maxsize=_KINDS_REMEMBERED)
def _known_kind(hardware: tuple[str, int, tuple[int, int], int, str | None, int], driver: str, cuda: str) -> DeviceKind:
    """Return a kind that was made before: thousands of devices share a few, and reports come all the time."""
    name, architecture, capability, total_mib, profile, sm_milli = hardware
    return device_kind(
        name,
        architecture=architecture,
        compute_capability=capability,
        total_mib=total_mib,
        driver=driver,
        cuda=cuda,
        mig_profile=profile,
        sm_milli=sm_milli,
    )


def _cause(device: Device, node: NodeState, standing: Standing) -> tuple[Cause, str]:
    """Return why the device takes no new pods, in one word and in a sentence. The gravest reason is named."""
    is_booked_by_both = device.owner is Owner.PLUGIN and device.uuid in standing.booked
    if device.owner is Owner.CONTRADICTION or is_booked_by_both:
        return Cause.CONTRADICTION, CLAIMED_TWICE
    if device.health is Health.LOST:
        return Cause.LOST, device.fault or GONE
    if device.total_mib <= device.reserved_mib:
        return Cause.NO_MEMORY, "the device has no schedulable memory"
    if device.health in (Health.OUT, Health.PROBATION):
        return Cause.FAULT, device.fault or f"health: {device.health}"
    if device.health is Health.CORDONED or _is_cordoned(device, standing):
        return Cause.CORDONED, CORDONED
    if node in _DRIVER_TROUBLE:
        return Cause.DRIVER, f"the node's driver does not serve: {node}"
    if not device.mode_ready:
        return Cause.NOT_READY, f"{device.mode} is set up and not ready"
    return Cause.NONE, device.fault


def _is_cordoned(device: Device, standing: Standing) -> bool:
    """Return whether the operator cordoned the device, or the GPU of which it is an instance."""
    return device.uuid in standing.cordoned or (device.mig is not None and device.mig.parent_uuid in standing.cordoned)
