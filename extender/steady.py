"""What of a report stays the same from one heartbeat to the next; one that differs in nothing else only brings load.

Nine reports of ten are such. The store compares this part with the last report's and then skips all that follows from
hardware and health, which is most of the work.
"""

from __future__ import annotations

from operator import attrgetter

from node_agent.report import Device, Report

_MOVES_IN_DEVICE = frozenset({"used_mib", "utilisation", "memory_utilisation", "temperature_celsius", "power_watts"})
_MOVES_IN_REPORT = frozenset({"sequence", "devices", "usage", "bookings_generation"})
"""What moves is listed, not what stays: a field that is added to the schema counts as hardware until it is listed."""

_device_part = attrgetter(*(name for name in Device.__struct_fields__ if name not in _MOVES_IN_DEVICE))
_report_part = attrgetter(*(name for name in Report.__struct_fields__ if name not in _MOVES_IN_REPORT))

SteadyPart = tuple[object, tuple[object, ...], tuple[str, ...]]


def steady_part(report: Report, booked: tuple[str, ...]) -> SteadyPart:
    """Return all of a report that a mere change of load leaves as it was; equal parts make equal facts.

    ``booked`` are the devices of which somebody holds a share: whether one is claimed twice follows from both.
    """
    return _report_part(report), tuple(map(_device_part, report.devices)), booked
