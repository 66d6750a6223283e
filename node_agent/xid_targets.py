"""Whom an XID concerns: the whole device, or the MIG instances in which the driver saw it."""

from __future__ import annotations

from collections.abc import Mapping

from node_agent.health_rules import Action, xid_rule
from node_agent.readings import DeviceReading, MigReading, XidEvent

_OF_THE_BOARD = frozenset({Action.RESET, Action.REPLACE})


def xid_targets(event: XidEvent, devices: Mapping[str, DeviceReading]) -> tuple[str, ...]:
    """Return the UUIDs that an event is held against; ``devices`` are the physical ones by UUID.

    The driver names GPU and compute instance where it can (node-side.md 1.5, XID). A fault that only a reset or a new
    board cures is the whole device's all the same: an instance cannot be reset alone.
    """
    device = devices.get(event.uuid)
    if device is None or event.gi_id is None or xid_rule(event.xid).action in _OF_THE_BOARD:
        return (event.uuid,)
    inside = tuple(each.uuid for each in device.mig_devices if _is_in(event, each))
    return inside or (event.uuid,)


def _is_in(event: XidEvent, instance: MigReading) -> bool:
    if instance.gi_id != event.gi_id:
        return False
    return event.ci_id is None or instance.ci_id is None or event.ci_id == instance.ci_id
