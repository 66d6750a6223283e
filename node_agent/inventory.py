"""Turns readings into a report: schedulable devices, foreign memory, use by pod; one bad device spoils no other.

Pure apart from what it remembers of devices that were there before: a GPU that vanishes from the driver's list goes on
being reported, as lost, so that the extender sees a lost device and not a smaller node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from node_agent.health import Verdict
from node_agent.occupancy import FindTenant, Occupancy, occupancy_of
from node_agent.readings import Claims, DeviceReading, MigReading, Readings
from node_agent.report import (
    SCHEMA_VERSION,
    Booking,
    Device,
    Health,
    Mig,
    Mode,
    NodeState,
    Owner,
    Report,
    Usage,
)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who reports: the node, one run of the agent (a fresh random word a start), the agent's version."""

    node: str
    agent_run: str
    agent_version: str = ""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What besides readings goes into a report."""

    bookings: Sequence[Booking] = ()
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    claims: Claims = field(default_factory=Claims)


class Inventory:
    """Builds the reports of one node."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._known: dict[str, DeviceReading] = {}
        self._sequence = 0

    def report(self, readings: Readings, circumstances: Circumstances, find_tenant: FindTenant) -> Report:
        """Return the next report; every call takes the next sequence number."""
        self._sequence += 1
        booked = _bookings_by_uuid(circumstances.bookings)
        devices: list[Device] = []
        usage: list[Usage] = []
        for reading in self._with_vanished(readings):
            for device, used in _schedulable(reading, circumstances, booked, find_tenant):
                devices.append(device)
                usage.extend(used)
        return Report(
            version=SCHEMA_VERSION,
            node=self._identity.node,
            agent_run=self._identity.agent_run,
            sequence=self._sequence,
            state=_state(readings.state, devices),
            message=readings.message,
            driver=readings.driver,
            cuda=readings.cuda,
            agent_version=self._identity.agent_version,
            devices=tuple(devices),
            plugin=circumstances.claims.plugin,
            usage=tuple(usage),
        )

    def forget(self, uuid: str) -> None:
        """Drop a device that the operator took out of the machine."""
        self._known.pop(uuid, None)

    def _with_vanished(self, readings: Readings) -> list[DeviceReading]:
        present = {device.uuid: device for device in readings.devices}
        vanished = [
            replace(device, lost=True, processes=(), mig_devices=(), problem="no longer listed by the driver")
            for uuid, device in self._known.items()
            if uuid not in present
        ]
        self._known.update({uuid: _whole(device, self._known.get(uuid)) for uuid, device in present.items()})
        return [self._known[uuid] for uuid in present] + vanished


def _whole(device: DeviceReading, before: DeviceReading | None) -> DeviceReading:
    """Give a device that no longer answers the identity and size that it had when it did."""
    if before is None or not device.lost:
        return device
    return replace(
        before,
        lost=True,
        problem=device.problem,
        processes=(),
        utilisation=None,
        used_mib=None,
        counters=device.counters,
    )


def _state(state: NodeState, devices: Iterable[Device]) -> NodeState:
    if state is NodeState.OK and any(device.health is Health.LOST for device in devices):
        return NodeState.DEGRADED
    return state


def _bookings_by_uuid(bookings: Iterable[Booking]) -> dict[str, list[Booking]]:
    grouped: dict[str, list[Booking]] = defaultdict(list)
    for booking in bookings:
        grouped[booking.uuid].append(booking)
    return grouped


def _schedulable(
    reading: DeviceReading,
    circumstances: Circumstances,
    booked: Mapping[str, Sequence[Booking]],
    find_tenant: FindTenant,
) -> Iterable[tuple[Device, tuple[Usage, ...]]]:
    """Yield the devices that one physical GPU stands for: itself, and its MIG instances where it is split.

    A split GPU is yielded too, marked ``mig_enabled``: nobody may take it, but its health and power are its instances'.
    """
    verdict = _judged(reading, circumstances.verdicts)
    pods = {booking.pod_uid for booking in circumstances.bookings}
    occupancy = occupancy_of(
        reading.uuid, reading.processes, reading.used_mib, booked.get(reading.uuid, ()), find_tenant, pods
    )
    yield _physical(reading, verdict, circumstances.claims, occupancy), occupancy.usage + occupancy.misplaced
    for instance in reading.mig_devices:
        shared = occupancy_of(
            instance.uuid, instance.processes, instance.used_mib, booked.get(instance.uuid, ()), find_tenant, pods
        )
        own = circumstances.verdicts.get(instance.uuid, verdict)
        device = _instance(reading, instance, _worse(verdict, own), circumstances.claims, shared)
        yield device, shared.usage + shared.misplaced


def _judged(reading: DeviceReading, verdicts: Mapping[str, Verdict]) -> Verdict:
    verdict = verdicts.get(reading.uuid, Verdict(Health.HEALTHY))
    if reading.lost and verdict.health not in {Health.LOST, Health.CORDONED}:
        return Verdict(Health.LOST, reading.problem)
    return verdict


_GRAVITY = {
    Health.HEALTHY: 0,
    Health.SUSPECT: 1,
    Health.PROBATION: 2,
    Health.OUT: 3,
    Health.LOST: 4,
    Health.CORDONED: 5,
}


def _worse(parent: Verdict, own: Verdict) -> Verdict:
    return own if _GRAVITY[own.health] >= _GRAVITY[parent.health] else parent


def _physical(reading: DeviceReading, verdict: Verdict, claims: Claims, occupancy: Occupancy) -> Device:
    return Device(
        uuid=reading.uuid,
        index=reading.index,
        name=reading.name,
        architecture=reading.architecture,
        compute_capability=reading.compute_capability,
        total_mib=reading.total_mib or 0,
        reserved_mib=reading.reserved_mib or 0,
        used_mib=reading.used_mib,
        foreign_mib=occupancy.foreign_mib,
        utilisation=load_of(reading),
        memory_utilisation=reading.memory_utilisation,
        temperature_celsius=reading.temperature_celsius,
        power_watts=reading.power_watts,
        power_limit_watts=reading.power_limit_watts,
        health=verdict.health,
        fault=verdict.fault,
        owner=owner_of(reading.uuid, claims, has_usage=bool(occupancy.usage)),
        mode=claims.modes.get(reading.uuid, Mode.TIME_SLICING),
        mode_ready=reading.uuid not in claims.not_ready,
        mig_enabled=reading.mig_enabled,
        mig_profiles=reading.mig_profiles,
        numa_node=reading.numa_node,
        link_group=reading.link_group,
        fabric_clique=reading.fabric_clique,
        pci_bus_id=reading.pci_bus_id,
    )


def _instance(
    parent: DeviceReading, instance: MigReading, verdict: Verdict, claims: Claims, occupancy: Occupancy
) -> Device:
    return Device(
        uuid=instance.uuid,
        index=parent.index,
        name=parent.name,
        architecture=parent.architecture,
        compute_capability=parent.compute_capability,
        total_mib=instance.total_mib or 0,
        reserved_mib=instance.reserved_mib or 0,
        used_mib=instance.used_mib,
        foreign_mib=occupancy.foreign_mib,
        sm_milli=_sm_milli(instance.sm_count, parent.sm_count),
        utilisation=instance.sm_active,
        health=verdict.health,
        fault=verdict.fault,
        owner=owner_of(instance.uuid, claims, has_usage=bool(occupancy.usage)),
        mode=Mode.MIG,
        mig=Mig(
            parent_uuid=parent.uuid,
            profile=instance.profile,
            gi_id=instance.gi_id,
            ci_id=instance.ci_id,
            placement_start=instance.placement_start,
            placement_size=instance.placement_size,
        ),
        numa_node=parent.numa_node,
        pci_bus_id=parent.pci_bus_id,
    )


def _sm_milli(instance_sm: int | None, parent_sm: int | None) -> int:
    if not instance_sm or not parent_sm:
        return 1000
    return min(1000, instance_sm * 1000 // parent_sm)


def load_of(reading: DeviceReading) -> float | None:
    """Return the load signal of a device, 0..1: SM activity where GPM offers it, else NVML's utilisation.

    Node-side.md 7, rule 5. A split device has none: NVML does not measure it. Its instances have one from Hopper on.
    """
    if reading.mig_enabled:
        return None
    return reading.utilisation if reading.sm_active is None else reading.sm_active


def owner_of(uuid: str, claims: Claims, *, has_usage: bool) -> Owner:
    """Say who hands the device out; a pod of ours on a device that the plugin advertises is a contradiction."""
    if uuid not in claims.plugin_uuids:
        return Owner.TANGRAM
    return Owner.CONTRADICTION if has_usage else Owner.PLUGIN
