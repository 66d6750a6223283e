"""One node in full, for whoever points at a device: its devices, the pods on them, booked beside measured."""

from __future__ import annotations

from collections.abc import Mapping

from extender.hardware import DeviceFacts
from extender.noderecord import NodeRecord
from extender.pages.picture import tint_of
from extender.viewers import HIDDEN
from node_agent.report import Booking, Device, Usage


def node_details(record: NodeRecord, bookings: tuple[Booking, ...], *, names: bool = True) -> dict[str, object]:
    """Return a node's devices with their shares, booked beside measured; sizes in MiB, compute in thousandths.

    Without ``names`` the shares are there, and nobody's.
    """
    report = record.report
    measured = {each.uuid: each for each in report.devices} if report is not None else {}
    usage = {(each.pod_uid, each.container, each.uuid): each for each in report.usage} if report is not None else {}
    return {
        "node": record.name,
        "fresh": record.is_fresh,
        "driver": report.driver if report is not None else "",
        "devices": [
            _device(
                facts, measured.get(uuid), _shares([each for each in bookings if each.uuid == uuid], usage, names=names)
            )
            for uuid, facts in record.devices.items()
        ],
    }


def _shares(
    bookings: list[Booking], usage: Mapping[tuple[str, str, str], Usage], *, names: bool
) -> list[dict[str, object]]:
    shares = list[dict[str, object]]()
    for booking in bookings:
        used = usage.get((booking.pod_uid, booking.container, booking.uuid))
        shares.append(
            {
                "pod": f"{booking.namespace}/{booking.name}" if names else HIDDEN,
                "container": booking.container if names else HIDDEN,
                "tint": tint_of(booking.pod_uid),
                "memory_mib": booking.memory_mib,
                "compute_milli": booking.compute_milli,
                "mode": booking.mode,
                "used_mib": used.memory_mib if used is not None else None,
                "used_sm": used.sm_ratio if used is not None else None,
            }
        )
    return shares


def _device(facts: DeviceFacts, measured: Device | None, shares: list[dict[str, object]]) -> dict[str, object]:
    return {
        "uuid": facts.uuid,
        "product": facts.kind.product,
        "generation": facts.kind.architecture.label,
        "mig": facts.kind.mig_profile,
        "mode": facts.mode.name.lower().replace("_", "-"),
        "health": str(facts.health),
        "problem": facts.problem,
        "capacity_mib": facts.capacity_mib,
        "capacity_milli": facts.capacity_milli,
        "foreign_mib": facts.foreign_mib,
        "used_mib": measured.used_mib if measured is not None else None,
        "utilisation": measured.utilisation if measured is not None else None,
        "temperature_celsius": measured.temperature_celsius if measured is not None else None,
        "power_watts": measured.power_watts if measured is not None else None,
        "shares": shares,
    }
