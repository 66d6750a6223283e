"""Every device in one row, booked beside measured, for ``tangram top``."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import TypedDict

from extender.hardware import DeviceFacts
from extender.noderecord import NodeRecord
from extender.store import ClusterStore
from node_agent.report import Device
from scoring.fleet import DeviceState

_AT_ONCE = 100


class DeviceRow(TypedDict):
    """One device: MiB, thousandths of compute, utilisation and load 0..1; None where it is not known."""

    node: str
    uuid: str
    product: str
    mode: str
    state: str
    health: str
    problem: str
    fresh: bool
    pods: int
    capacity_mib: int
    booked_mib: int
    used_mib: int | None
    foreign_mib: int
    capacity_milli: int
    booked_milli: int
    utilisation: float | None
    load: float | None


async def device_rows(store: ClusterStore, pause: Callable[[], Awaitable[None]]) -> list[DeviceRow]:
    """Return a row a device, by node and slot, with a pause every hundred nodes so that decisions go on."""
    rows: list[DeviceRow] = []
    for number, record in enumerate(sorted(store.nodes(), key=lambda record: record.name), 1):
        rows += _rows(store, record)
        if number % _AT_ONCE == 0:
            await pause()
    return rows


def _rows(store: ClusterStore, record: NodeRecord) -> list[DeviceRow]:
    report = record.report
    measured = {each.uuid: each for each in report.devices} if report is not None and record.is_fresh else {}
    return [_row(store, record, facts, measured.get(uuid)) for uuid, facts in record.devices.items()]


def _row(store: ClusterStore, record: NodeRecord, facts: DeviceFacts, measured: Device | None) -> DeviceRow:
    given = store.ledger.device(record.name, facts.uuid)
    load = record.load.get(facts.uuid)
    return {
        "node": record.name,
        "uuid": facts.uuid,
        "product": facts.kind.product,
        "mode": facts.mode.name.lower().replace("_", "-"),
        "state": DeviceState(facts.state).name.lower(),
        "health": str(facts.health),
        "problem": facts.problem,
        "fresh": record.is_fresh,
        "pods": len(given.uids),
        "capacity_mib": facts.capacity_mib,
        "booked_mib": given.memory_mib,
        "used_mib": None if measured is None else measured.used_mib,
        "foreign_mib": facts.foreign_mib,
        "capacity_milli": facts.capacity_milli,
        "booked_milli": given.compute_milli,
        "utilisation": None if measured is None else measured.utilisation,
        "load": None if load is None or math.isnan(load.value) else round(load.value, 4),
    }
