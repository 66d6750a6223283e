"""Who uses more than was booked: measured beside booked, pod by pod and device by device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from node_agent.report import Booking, Usage

TOLERANCE_MIB = 64
TOLERANCE_RATIO = 0.05
"""Time-slicing cuts time unevenly over a sample; a twentieth of a device is noise."""


@dataclass(frozen=True, slots=True)
class Share:
    """One pod on one device: what it booked and what it uses; ``used_ratio`` None where the driver does not tell."""

    pod_uid: str
    namespace: str
    name: str
    uuid: str
    booked_mib: int
    booked_ratio: float
    used_mib: int
    used_ratio: float | None

    def over_memory(self) -> bool:
        """Tell whether the pod holds more memory than it booked."""
        return self.used_mib > self.booked_mib + TOLERANCE_MIB

    def over_compute(self) -> bool:
        """Tell whether the pod takes more SM time than it booked; only a harm where the device is shared."""
        return self.used_ratio is not None and self.used_ratio > self.booked_ratio + TOLERANCE_RATIO


def shares(bookings: Iterable[Booking], usage: Iterable[Usage]) -> list[Share]:
    """Put measured beside booked, one entry per pod and device with a booking, in order of both.

    A pod with a booking on the node that uses a device which it did not book has an entry there, with nothing booked.
    """
    booked: dict[tuple[str, str], list[Booking]] = defaultdict(list)
    pods: dict[str, Booking] = {}
    for booking in bookings:
        booked[booking.pod_uid, booking.uuid].append(booking)
        pods[booking.pod_uid] = booking
    used: dict[tuple[str, str], list[Usage]] = defaultdict(list)
    for each in usage:
        if each.pod_uid in pods:
            used[each.pod_uid, each.uuid].append(each)
    return [
        _share(pods[key[0]], key[1], booked.get(key, []), used.get(key, []))
        for key in sorted(booked.keys() | used.keys())
    ]


def _share(pod: Booking, uuid: str, parts: list[Booking], used: list[Usage]) -> Share:
    ratios = [each.sm_ratio for each in used if each.sm_ratio is not None]
    return Share(
        pod_uid=pod.pod_uid,
        namespace=pod.namespace,
        name=pod.name,
        uuid=uuid,
        booked_mib=sum(each.memory_mib for each in parts),
        booked_ratio=sum(each.compute_milli for each in parts) / 1000,
        used_mib=sum(each.memory_mib for each in used),
        used_ratio=sum(ratios) if ratios else None,
    )
