"""One pass over all GPUs through the adapters: what never changes is asked rarely, what moves every time.

A device that fails is described as far as it answered; it never ends the pass (node-side.md 6, rows 3, 4, 7, 39).
Handles are dropped whenever the set of devices changes or one is lost (row 2).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from node_agent.node_state import no_devices, state_of_sweep
from node_agent.nvml import Nvml
from node_agent.nvml_asker import Handle
from node_agent.nvml_decode import Memory, sm_count_of
from node_agent.nvml_outcome import Kind
from node_agent.readings import CallError, DeviceReading, MigReading, Readings
from node_agent.sweep_gpm import GpmReader
from node_agent.sweep_health import counters_of, with_power
from node_agent.sweep_processes import ProcessReader, used_mib_of
from node_agent.topology import SAME_NUMA_NODE, link_groups, near_groups, numa_node

MAX_LINKS = 36


@dataclass(frozen=True, slots=True)
class Cadence:
    """Seconds between questions: what a device is, its health counters, its temperature, power and energy."""

    identity_s: float = 60.0
    health_s: float = 30.0
    power_s: float = 10.0


@dataclass(slots=True)
class _Device:
    """A device between two passes."""

    handle: Handle
    reading: DeviceReading
    migs: list[tuple[Handle, MigReading]] = field(default_factory=list)
    gpm: bool = False
    health_due_s: float = 0.0
    power_due_s: float = 0.0


class Sweeper:
    """Holds what is known of the devices between passes. One thread only."""

    def __init__(
        self, nvml: Nvml, sysfs_root: Path, cadence: Cadence | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._nvml = nvml
        self._sysfs_root = sysfs_root
        self._cadence = cadence or Cadence()
        self._clock = clock
        self._devices: dict[int, _Device] = {}
        self._uuids: dict[int, str] = {}
        self._identity_due_s = 0.0
        self._versions = ("", "")
        self._processes = ProcessReader(nvml)
        self._gpm = GpmReader(nvml)

    def handles(self) -> list[Handle]:
        """Return the handles of the devices that can be used, for event registration."""
        return [device.handle for device in self._devices.values()]

    def hurry(self) -> None:
        """Ask for everything at the next pass: the driver announced something."""
        self._identity_due_s = 0.0
        for device in self._devices.values():
            device.health_due_s = device.power_due_s = 0.0

    def sweep(self) -> Readings:
        """Make one pass."""
        started_s = self._clock()
        count = self._nvml.device_count()
        if count.kind is not Kind.VALUE or not count.value:
            self._devices.clear()
            return no_devices(count)
        if started_s >= self._identity_due_s or set(self._devices) != set(range(count.value)):
            self._identify(count.value, started_s)
        devices, problems = self._read_all(count.value, started_s)
        errors = tuple(CallError(call=call, code=code, count=n) for (call, code), n in self._nvml.take_errors().items())
        return Readings(
            state=state_of_sweep(devices, problems),
            message="; ".join(problems),
            driver=self._versions[0],
            cuda=self._versions[1],
            devices=tuple(devices),
            errors=errors,
            duration_s=self._clock() - started_s,
        )

    def _identify(self, count: int, now_s: float) -> None:
        self._identity_due_s = now_s + self._cadence.identity_s
        self._versions = (self._nvml.driver_version().value or "", self._nvml.cuda_version().value or "")
        before, self._devices = self._devices, {}
        for index in range(count):
            handle = self._nvml.handle(index)
            if handle.value is None:
                continue
            uuid = self._nvml.uuid(handle.value)
            if not uuid.value:
                continue
            known = before.get(index)
            reading = self._identity(index, handle.value, uuid.value)
            self._devices[index] = _Device(handle.value, reading, self._instances(handle.value, reading))
            self._devices[index].gpm = bool(self._nvml.gpm_supported(handle.value).value)
            if known is not None:
                self._keep(known, self._devices[index])
        self._tell_twins_apart()
        self._link()
        self._locate()
        self._gpm.keep(uuid for device in self._devices.values() for uuid in _uuids_of(device))
        self._uuids.update({index: device.reading.uuid for index, device in self._devices.items()})

    def _keep(self, known: _Device, device: _Device) -> None:
        """Carry over what was measured on the slower cadences."""
        if known.reading.uuid == device.reading.uuid:
            old = known.reading
            device.health_due_s, device.power_due_s = known.health_due_s, known.power_due_s
            device.reading = replace(
                device.reading,
                temperature_celsius=old.temperature_celsius,
                power_watts=old.power_watts,
                counters=old.counters,
            )

    def _identity(self, index: int, handle: Handle, uuid: str) -> DeviceReading:
        nvml = self._nvml
        bus_id = nvml.pci_bus_id(handle).value or ""
        capability = nvml.compute_capability(handle).value
        is_split = bool(nvml.mig_enabled(handle).value)
        return DeviceReading(
            uuid=uuid,
            index=index,
            name=nvml.name(handle).value or "",
            architecture=nvml.architecture(handle).value,
            compute_capability=capability,
            pci_bus_id=bus_id,
            numa_node=numa_node(self._sysfs_root, bus_id),
            sm_count=sm_count_of(nvml.core_count(handle).value, capability),
            power_limit_watts=nvml.power_limit_watts(handle).value,
            mig_enabled=is_split,
            mig_profiles=nvml.mig_profiles(handle) if is_split else (),
            fabric_clique=(nvml.fabric_state(handle).value or (0, ""))[1],
        )

    def _instances(self, parent: Handle, reading: DeviceReading) -> list[tuple[Handle, MigReading]]:
        if not reading.mig_enabled:
            return []
        found = []
        for handle in self._nvml.mig_handles(parent).value or ():
            uuid = self._nvml.uuid(handle).value
            if uuid:
                found.append((handle, self._instance(parent, handle, uuid)))
        return found

    def _instance(self, parent: Handle, handle: Handle, uuid: str) -> MigReading:
        gi_id, ci_id = self._nvml.mig_ids(handle)
        placement = self._nvml.mig_placement(parent, gi_id).value if gi_id is not None else None
        return MigReading(
            uuid=uuid,
            profile=(self._nvml.name(handle).value or "").partition(" MIG ")[2],
            gi_id=gi_id,
            ci_id=ci_id,
            placement_start=placement[0] if placement else None,
            placement_size=placement[1] if placement else None,
            sm_count=self._nvml.mig_sm_count(handle).value,
        )

    def _tell_twins_apart(self) -> None:
        """Two devices with one UUID (cloned vGPU): the second is known by UUID and address."""
        seen: set[str] = set()
        for device in self._devices.values():
            uuid = device.reading.uuid
            if uuid in seen:
                uuid = f"{uuid}@{device.reading.pci_bus_id}"
                uuid = f"{uuid}#{device.reading.index}" if uuid in seen else uuid
                device.reading = replace(device.reading, uuid=uuid, problem="another device has the same UUID")
            seen.add(uuid)

    def _link(self) -> None:
        peers = {
            device.reading.pci_bus_id: list(self._peers(device))
            for device in self._devices.values()
            if device.reading.pci_bus_id
        }
        groups = link_groups(peers)
        for device in self._devices.values():
            device.reading = replace(device.reading, link_group=groups.get(device.reading.pci_bus_id))

    def _locate(self) -> None:
        """Find by common ancestor who shares a NUMA node where sysfs does not tell, as in many virtual machines."""
        unknown = [device for device in self._devices.values() if device.reading.numa_node is None]
        if len(unknown) < 2:
            return
        taken = [each.reading.numa_node for each in self._devices.values() if each.reading.numa_node is not None]
        groups = near_groups(len(unknown), lambda a, b: self._are_near(unknown[a], unknown[b]))
        for number, device in zip(groups, unknown, strict=True):
            if number is not None:
                device.reading = replace(device.reading, numa_node=max(taken, default=-1) + 1 + number)

    def _are_near(self, first: _Device, second: _Device) -> bool:
        level = self._nvml.common_ancestor(first.handle, second.handle).value
        return level is not None and level <= SAME_NUMA_NODE

    def _peers(self, device: _Device) -> Iterable[str]:
        if device.reading.mig_enabled:
            return
        for link in range(MAX_LINKS):
            peer = self._nvml.nvlink_peer(device.handle, link)
            if peer.kind is not Kind.VALUE:
                return
            if peer.value:
                yield peer.value

    def _read_all(self, count: int, now_s: float) -> tuple[list[DeviceReading], list[str]]:
        devices, problems = [], []
        for index in range(count):
            device = self._devices.get(index)
            reading = self._unreadable(index) if device is None else self._read(device, now_s)
            if reading is None:
                problems.append(f"device {index} cannot be opened: {self._nvml.handle(index).words()}")
                continue
            if reading.lost:
                self._identity_due_s = 0.0
                self._devices.pop(index, None)
            devices.append(reading)
        return devices, problems

    def _unreadable(self, index: int) -> DeviceReading | None:
        """Describe a device that cannot be opened now but could before; without a UUID there is nothing to describe."""
        outcome = self._nvml.handle(index)
        uuid = self._uuids.get(index)
        if uuid is None or outcome.kind is Kind.DENIED:
            return None
        return DeviceReading(uuid=uuid, index=index, lost=True, problem=outcome.words())

    def _read(self, device: _Device, now_s: float) -> DeviceReading:
        memory = self._nvml.memory(device.handle)
        if memory.kind is Kind.LOST:
            return replace(device.reading, lost=True, problem=memory.words())
        if now_s >= device.health_due_s:
            device.health_due_s = now_s + self._cadence.health_s
            device.reading = replace(device.reading, counters=counters_of(self._nvml, device.handle))
        if now_s >= device.power_due_s:
            device.power_due_s = now_s + self._cadence.power_s
            device.reading = with_power(self._nvml, device.handle, device.reading)
        load = self._nvml.utilisation(device.handle)
        if load.kind is Kind.LOST:
            return replace(device.reading, lost=True, problem=load.words())
        return self._moving(device, memory.value, load.value or (None, None))

    def _moving(self, device: _Device, size: Memory | None, load: tuple[float | None, float | None]) -> DeviceReading:
        """Return the reading with what moves all the time."""
        handle, before = device.handle, device.reading
        is_split = before.mig_enabled
        processes = self._processes.read(handle, before.uuid, with_load=not is_split)
        return replace(
            before,
            total_mib=size.total_mib if size else None,
            reserved_mib=size.reserved_mib if size else None,
            used_mib=used_mib_of(size, processes, before.compute_capability),
            utilisation=load[0],
            memory_utilisation=load[1],
            sm_active=self._gpm.read(before.uuid, handle) if device.gpm and not is_split else None,
            processes=processes,
            mig_devices=tuple(self._read_instance(device, each, mig) for each, mig in device.migs),
        )

    def _read_instance(self, device: _Device, handle: Handle, mig: MigReading) -> MigReading:
        size = self._nvml.memory(handle).value
        knows_load = device.gpm and mig.gi_id is not None
        return replace(
            mig,
            total_mib=size.total_mib if size else None,
            reserved_mib=size.reserved_mib if size else None,
            used_mib=size.used_mib if size else None,
            sm_active=self._gpm.read_instance(mig.uuid, device.handle, mig.gi_id or 0) if knows_load else None,
            processes=self._processes.read(handle, mig.uuid, with_load=False),
        )


def _uuids_of(device: _Device) -> list[str]:
    return [device.reading.uuid, *(mig.uuid for _, mig in device.migs)]
