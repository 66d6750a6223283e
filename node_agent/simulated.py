"""A reader without GPUs: what the described node would show at a given second, given what the extender booked on it.

``simulate`` is pure: the same description, time, bookings and interventions give the same readings.
``simulated_reader`` is the thin shell that has a clock. UUIDs follow from node name and index alone, so they survive
restarts.
"""

from __future__ import annotations

import math
import uuid as uuids
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from msgspec.structs import replace

from node_agent.readings import (
    Claims,
    Counters,
    DeviceReading,
    MigReading,
    ProcessReading,
    Readings,
    Tenant,
    XidEvent,
)
from node_agent.report import Booking, Mode, NodeState, PluginResource
from node_agent.simulated_description import (
    Description,
    DeviceRow,
    Fault,
    HangFault,
    Load,
    LostFault,
    XidFault,
    place_instances,
)
from node_agent.simulated_products import Product

_NAMESPACE = uuids.UUID("6f0d4f0e-6a0f-5d55-9d0c-6c0a7d1f4b11")
_FIRST_POD_PID = 1_000_000
_FIRST_FOREIGN_PID = 2_000
_IDLE_POWER_SHARE = 0.15

FaultT = TypeVar("FaultT", XidFault, LostFault, HangFault)


@lru_cache(maxsize=65_536)
def device_uuid(node: str, index: int) -> str:
    """Return the UUID of a node's device, the same in every run."""
    return f"GPU-{uuids.uuid5(_NAMESPACE, f'{node}/{index}')}"


@lru_cache(maxsize=65_536)
def instance_uuid(node: str, index: int, instance: int) -> str:
    """Return the UUID of one MIG instance, the same in every run."""
    return f"MIG-{uuids.uuid5(_NAMESPACE, f'{node}/{index}/{instance}')}"


@dataclass(frozen=True, slots=True)
class Interventions:
    """What somebody changed by hand while the simulation ran; it wins over the description."""

    utilisation: Mapping[str, float] = field(default_factory=dict)
    foreign_mib: Mapping[str, int] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True)
class Scene:
    """One simulated sweep, and whose its processes are."""

    readings: Readings
    tenants: Mapping[int, Tenant]


NOTHING_CHANGED = Interventions()


def simulate(
    description: Description,
    time_s: float,
    bookings: Sequence[Booking] = (),
    *,
    since_s: float = -math.inf,
    interventions: Interventions = NOTHING_CHANGED,
) -> Scene:
    """Return what the node shows ``time_s`` seconds into the simulation; events are those after ``since_s``."""
    faults = description.faults + interventions.faults
    hang = _active(faults, HangFault, time_s)
    seen_s = min((fault.at_s for fault in hang), default=time_s)
    booked: dict[str, list[Booking]] = defaultdict(list)
    for booking in bookings:
        booked[booking.uuid].append(booking)
    tenants: dict[int, Tenant] = {}
    moment = _Moment(description, seen_s, faults, booked, interventions, tenants)
    devices = tuple(_device(moment, index, row, product) for index, row, product in description.rows())
    first = next((product for _, _, product in description.rows()), None)
    readings = Readings(
        state=_node_state(devices, is_hanging=bool(hang)),
        message="NVML does not answer" if hang else "",
        driver=description.driver or (first.driver if first else ""),
        cuda=description.cuda or (first.cuda if first else ""),
        devices=devices,
        events=() if hang else tuple(_events(description, faults, since_s, time_s)),
        age_s=time_s - seen_s,
    )
    return Scene(readings, tenants)


def claims_of(description: Description) -> Claims:
    """Return which devices belong to NVIDIA's plugin, and each device's sharing mode."""
    plugin = tuple(
        PluginResource(
            resource=row.resource,
            replicas=len(row.devices) if row.replicas is None else row.replicas,
            used=row.used,
            uuids=tuple(device_uuid(description.node, index) for index in row.devices),
        )
        for row in description.plugin
    )
    modes: dict[str, Mode] = {
        device_uuid(description.node, index): row.mode
        for index, row, _ in description.rows()
        if row.mode is not Mode.TIME_SLICING
    }
    return Claims(plugin=plugin, plugin_uuids=frozenset(uuid for each in plugin for uuid in each.uuids), modes=modes)


def is_static(description: Description) -> bool:
    """Tell whether time alone changes nothing on this node."""
    return not description.faults and not any(
        isinstance(row.utilisation, Load) or any(each.from_s > 0 or each.until_s < math.inf for each in row.foreign)
        for row in description.devices
    )


@dataclass(frozen=True, slots=True)
class _Moment:
    """All that one device's reading depends on."""

    description: Description
    time_s: float
    faults: tuple[Fault, ...]
    booked: Mapping[str, Sequence[Booking]]
    interventions: Interventions
    tenants: dict[int, Tenant]


def _active(faults: Iterable[Fault], kind: type[FaultT], time_s: float) -> list[FaultT]:
    return [fault for fault in faults if isinstance(fault, kind) and fault.at_s <= time_s < fault.until_s]


def _node_state(devices: Sequence[DeviceReading], *, is_hanging: bool) -> NodeState:
    if is_hanging:
        return NodeState.STALE
    if not devices:
        return NodeState.NO_GPU
    return NodeState.DEGRADED if any(device.lost for device in devices) else NodeState.OK


def _events(description: Description, faults: Iterable[Fault], since_s: float, time_s: float) -> Iterable[XidEvent]:
    happened = [fault for fault in faults if isinstance(fault, XidFault) and since_s < fault.at_s <= time_s]
    for fault in sorted(happened, key=lambda each: each.at_s):
        yield XidEvent(uuid=device_uuid(description.node, fault.device), xid=fault.xid)


def _device(moment: _Moment, index: int, row: DeviceRow, product: Product) -> DeviceReading:
    node = moment.description.node
    uuid = device_uuid(node, index)
    identity = DeviceReading(
        uuid=uuid,
        index=index,
        name=product.name,
        architecture=product.architecture,
        compute_capability=product.compute_capability,
        pci_bus_id=f"00000000:{0x10 + index:02X}:00.0",
        numa_node=0 if index * 2 < sum(each.count for each in moment.description.devices) else 1,
        link_group=0 if product.linked and row.mig is None else None,
        total_mib=product.total_mib,
        reserved_mib=product.reserved_mib,
        sm_count=product.sm_count,
        power_limit_watts=product.power_limit_watts,
        mig_enabled=row.mig is not None,
    )
    if any(fault.device == index for fault in _active(moment.faults, LostFault, moment.time_s)):
        return replace(identity, lost=True, problem="GPU is lost")
    if row.mig is not None:
        return _split(moment, identity, row.mig, product)
    return _measured(moment, identity, row)


def _measured(moment: _Moment, identity: DeviceReading, row: DeviceRow) -> DeviceReading:
    shares = moment.booked.get(identity.uuid, ())
    processes = (*_pod_processes(moment, shares), *_foreign_processes(moment, identity.uuid, identity.index or 0, row))
    load = _utilisation(moment, identity.uuid, row.utilisation, shares)
    limit_watts = identity.power_limit_watts or 0.0
    power_watts = limit_watts * (_IDLE_POWER_SHARE + (1 - _IDLE_POWER_SHARE) * load)
    room_mib = (identity.total_mib or 0) - (identity.reserved_mib or 0)
    return replace(
        identity,
        used_mib=min(room_mib, sum(process.memory_mib or 0 for process in processes)),
        utilisation=load,
        memory_utilisation=round(load * 0.6, 3),
        temperature_celsius=round(32 + 45 * load),
        power_watts=round(power_watts, 1),
        processes=processes,
        counters=_counters(moment, identity.index or 0, limit_watts),
    )


def _counters(moment: _Moment, index: int, limit_watts: float) -> Counters:
    """Energy since the last reset, which is how health sees that there was one; kept monotonic between resets."""
    resets = [
        fault.until_s
        for fault in moment.faults
        if isinstance(fault, XidFault) and fault.device == index and fault.until_s <= moment.time_s
    ]
    running_s = moment.time_s - max(resets, default=0.0)
    return Counters(energy_mj=int(running_s * limit_watts * _IDLE_POWER_SHARE * 1000))


def _utilisation(moment: _Moment, uuid: str, load: float | Load | None, shares: Sequence[Booking]) -> float:
    if uuid in moment.interventions.utilisation:
        return moment.interventions.utilisation[uuid]
    by_pods = sum(share.compute_milli for share in shares) / 1000 * moment.description.pods.compute_ratio
    return round(min(1.0, max(_base_load(load, moment.time_s), by_pods)), 4)


def _base_load(load: float | Load | None, time_s: float) -> float:
    if load is None:
        return 0.0
    if not isinstance(load, Load):
        return float(load)
    if load.sine is not None:
        angle = 2 * math.pi * (time_s + load.sine.phase_s) / load.sine.period_s
        return min(1.0, max(0.0, load.sine.mean + load.sine.amplitude * math.sin(angle)))
    return next((value for from_s, value in reversed(load.steps) if from_s <= time_s), 0.0)


def _pod_processes(moment: _Moment, shares: Sequence[Booking]) -> Iterable[ProcessReading]:
    pods = moment.description.pods
    for share in shares:
        pid = _FIRST_POD_PID + zlib.crc32(f"{share.pod_uid}/{share.container}/{share.uuid}".encode())
        moment.tenants[pid] = Tenant(pod_uid=share.pod_uid, container=share.container)
        yield ProcessReading(
            pid=pid,
            memory_mib=int(share.memory_mib * pods.memory_ratio),
            sm_ratio=round(min(1.0, share.compute_milli / 1000 * pods.compute_ratio), 4),
        )


def _foreign_processes(moment: _Moment, uuid: str, index: int, row: DeviceRow) -> Iterable[ProcessReading]:
    held_mib = [each.memory_mib for each in row.foreign if each.from_s <= moment.time_s < each.until_s]
    if uuid in moment.interventions.foreign_mib:
        held_mib = [moment.interventions.foreign_mib[uuid]]
    for number, memory_mib in enumerate(each for each in held_mib if each):
        yield ProcessReading(pid=_FIRST_FOREIGN_PID + index * 100 + number, memory_mib=memory_mib)


def _split(moment: _Moment, identity: DeviceReading, profiles: tuple[str, ...], product: Product) -> DeviceReading:
    starts = place_instances("", product, profiles)
    instances: list[MigReading] = []
    for number, (profile, start) in enumerate(zip(profiles, starts, strict=True)):
        shape = product.mig[profile]
        uuid = instance_uuid(moment.description.node, identity.index or 0, number)
        processes = tuple(_pod_processes(moment, moment.booked.get(uuid, ())))
        instances.append(
            MigReading(
                uuid=uuid,
                profile=profile,
                gi_id=number + 1,
                ci_id=0,
                placement_start=start,
                placement_size=shape.slices,
                sm_count=shape.sm_count,
                total_mib=shape.memory_mib,
                reserved_mib=0,
                used_mib=sum(process.memory_mib or 0 for process in processes),
                processes=processes,
            )
        )
    limit_watts = identity.power_limit_watts or 0.0
    return replace(
        identity,
        mig_devices=tuple(instances),
        temperature_celsius=40,
        power_watts=round(limit_watts * 0.3, 1),
        counters=_counters(moment, identity.index or 0, limit_watts),
    )
