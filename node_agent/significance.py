"""Which difference between two reports is worth a push at once, and which can wait for the heartbeat.

Health, devices, owners, modes and the node's state always matter. Measured values matter when they cross a coarse step
by more than noise, so that a value that trembles on a border does not push every second.
"""

from __future__ import annotations

from itertools import pairwise

from node_agent.report import Device, PluginResource, Report

LOAD_STEPS = (0.0, 0.05, 0.25, 0.5, 0.75, 0.9, 1.01)
LOAD_NOISE = 0.1
FOREIGN_NOISE_MIB = 128


def matters(before: Report | None, after: Report) -> bool:
    """Tell whether ``after`` says something that the extender should know before the next heartbeat."""
    if before is None:
        return True
    if (before.state, before.driver, len(before.devices)) != (after.state, after.driver, len(after.devices)):
        return True
    if _plugin(before.plugin) != _plugin(after.plugin):
        return True
    known = {device.uuid: device for device in before.devices}
    return any(_device_matters(known.get(device.uuid), device) for device in after.devices)


def load_step(load: float | None) -> int | None:
    """Return the number of the coarse step that a load lies in, None for an unknown load."""
    if load is None:
        return None
    return next((number for number, (low, high) in enumerate(pairwise(LOAD_STEPS)) if low <= load < high), None)


def _plugin(resources: tuple[PluginResource, ...]) -> list[tuple[str, int, int]]:
    return sorted((each.resource, each.replicas, each.used) for each in resources)


def _device_matters(before: Device | None, after: Device) -> bool:
    return (
        before is None
        or _standing(before) != _standing(after)
        or _foreign_moved(before, after)
        or _load_moved(before, after)
    )


def _standing(device: Device) -> tuple[object, ...]:
    return (
        device.health,
        device.fault,
        device.owner,
        device.mode,
        device.mode_ready,
        device.mig,
        device.mig_enabled,
        device.total_mib,
        device.reserved_mib,
        device.name,
    )


def _foreign_moved(before: Device, after: Device) -> bool:
    if (before.foreign_mib == 0) != (after.foreign_mib == 0):
        return True
    return abs(before.foreign_mib - after.foreign_mib) >= FOREIGN_NOISE_MIB


def _load_moved(before: Device, after: Device) -> bool:
    if load_step(before.utilisation) == load_step(after.utilisation):
        return False
    if before.utilisation is None or after.utilisation is None:
        return True
    return abs(before.utilisation - after.utilisation) >= LOAD_NOISE
