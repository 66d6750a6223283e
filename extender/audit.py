"""The books against the pods' annotations against what agents measure: every difference, and what to do about it.

Pure but for ``books_of`` and ``read_books``, which read the store on its loop. A list of pods is never of the same
moment as the books, so books are read before and after the list, and what changed in between is left out: such a pod is
on its way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from extender.holdings import DeviceBooking, Holding, ObservedPod, Phase
from extender.noderecord import NodeRecord
from extender.observing import WITHOUT_ALLOCATION
from extender.store import ClusterStore
from node_agent.report import Owner

_AT_ONCE = 100
FOREIGN_TOLERANCE_MIB = 64
"""Less is what drivers keep for themselves and attribute to nobody."""


class Kind(StrEnum):
    """Kinds of difference."""

    ANNOTATION_WITHOUT_BOOKING = "annotation-without-booking"
    BOOKING_WITHOUT_POD = "booking-without-pod"
    BOOKING_WITHOUT_ANNOTATION = "booking-without-annotation"
    AMOUNTS_DIFFER = "amounts-differ"
    UNREADABLE_ANNOTATION = "unreadable-annotation"
    UNRECORDED = "bound-without-allocation"
    DEVICE_OVER = "device-over"
    UNKNOWN_UUID = "unknown-uuid"
    PROCESS_WITHOUT_POD = "process-without-pod"
    USE_WITHOUT_BOOKING = "use-without-booking"
    TWO_OWNERS = "two-owners"


ADVICE: Mapping[Kind, str] = {
    Kind.ANNOTATION_WITHOUT_BOOKING: "the extender missed this pod: if it stays for a minute, look at its watch (log, "
    "metrics) and restart it; the books are made again from annotations",
    Kind.BOOKING_WITHOUT_POD: "the pod is gone and its share is still booked: if it stays for a minute, restart the "
    "extender; the books are made again from the pods that exist",
    Kind.BOOKING_WITHOUT_ANNOTATION: "somebody removed the pod's allocation annotation: delete the pod and have it "
    "placed again; after a restart its share would be given away twice",
    Kind.AMOUNTS_DIFFER: "the annotation was changed after the pod was placed: delete the pod, and let the admission "
    "policies guard the annotation",
    Kind.UNREADABLE_ANNOTATION: "the allocation annotation is damaged, so the node takes nothing more: delete the pod",
    Kind.UNRECORDED: "another scheduler bound this pod: delete it, and set its schedulerName to Tangram's",
    Kind.DEVICE_OVER: "more is booked than the device has; it takes nothing more: delete one of the pods on it",
    Kind.UNKNOWN_UUID: "no agent reports this device: if it was replaced, delete the pod; if the node was set up anew "
    "(MIG layout, driver), the pod holds nothing any more",
    Kind.PROCESS_WITHOUT_POD: "a process that belongs to no pod of Tangram's holds GPU memory: find it on the node "
    "with nvidia-smi; a display, a container outside Kubernetes, or a pod without a request are usual",
    Kind.USE_WITHOUT_BOOKING: "a pod uses a device that is not booked for it: it sees devices by another way "
    "(privileged, NVIDIA_VISIBLE_DEVICES in its image); delete it and look at the admission policies",
    Kind.TWO_OWNERS: "Tangram and NVIDIA's device plugin both hand this device out: keep the plugin off the node, or "
    "Tangram's agent",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One difference: where, who, the amounts in words, and what to do."""

    kind: Kind
    node: str
    uuid: str
    pod: str
    found: str
    advice: str


@dataclass(frozen=True, slots=True)
class DeviceSide:
    """One device as its agent reports it, in MiB and thousandths; ``users`` is pod UID -> MiB in use."""

    node: str
    uuid: str
    capacity_mib: int
    capacity_milli: int
    foreign_mib: int
    is_contradicted: bool
    users: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Books:
    """What the extender believes at one moment. ``reported`` are the nodes whose agents are heard of."""

    holdings: Mapping[str, Holding]
    devices: tuple[DeviceSide, ...]
    reported: frozenset[str]


def books_of(store: ClusterStore) -> Books:
    """Return the books and the agents' reports as they are now; for the store's thread."""
    return _books(store, [side for record in store.nodes() for side in _sides(record)])


async def read_books(store: ClusterStore, pause: Callable[[], Awaitable[None]]) -> Books:
    """Return the same with a pause every hundred nodes; the books themselves are of one moment, the last."""
    sides: list[DeviceSide] = []
    for number, record in enumerate(store.nodes(), 1):
        sides += _sides(record)
        if number % _AT_ONCE == 0:
            await pause()
    return _books(store, sides)


def _books(store: ClusterStore, sides: list[DeviceSide]) -> Books:
    """Put books and devices together; a report is of a moment when pods were there that are gone by now."""
    gone = store.ledger.is_gone
    devices = tuple(
        replace(side, users={uid: mib for uid, mib in side.users.items() if not gone(uid)}) if side.users else side
        for side in sides
    )
    holdings = {holding.pod.uid: holding for holding in store.ledger.all()}
    reported = frozenset(record.name for record in store.nodes() if record.report is not None and record.is_fresh)
    return Books(holdings, devices, reported)


def _sides(record: NodeRecord) -> Iterator[DeviceSide]:
    report = record.report
    if report is None or not record.is_fresh:
        return
    users: dict[str, dict[str, int]] = {}
    for usage in report.usage:
        of_device = users.setdefault(usage.uuid, {})
        of_device[usage.pod_uid] = of_device.get(usage.pod_uid, 0) + usage.memory_mib
    for device in report.devices:
        facts = record.devices.get(device.uuid)
        if facts is not None:
            yield DeviceSide(
                record.name,
                device.uuid,
                facts.capacity_mib,
                facts.capacity_milli,
                facts.foreign_mib,
                device.owner is Owner.CONTRADICTION,
                users.get(device.uuid, {}),
            )


def audit(before: Mapping[str, Holding], pods: Iterable[ObservedPod], after: Books) -> tuple[Finding, ...]:
    """Return every difference, by kind, node, device and pod; ``pods`` are all pods of the API server.

    ``before`` are the holdings by pod UID when the list was begun, ``after`` the books when it was complete.
    """
    there = {seen.pod.uid: seen for seen in pods if seen.node and not seen.is_over}
    settled = {uid for uid, held in after.holdings.items() if _is_settled(held, before.get(uid))}
    moving = (set(before) | set(after.holdings)) - settled
    findings = [
        *_pods_against_books(there, {uid: after.holdings[uid] for uid in settled}, moving),
        *_devices_against_books(after),
        *_measured_against_books(after, there),
    ]
    return tuple(sorted(findings, key=lambda each: (each.kind, each.node, each.uuid, each.pod)))


def _is_settled(held: Holding, earlier: Holding | None) -> bool:
    return held == earlier and held.phase is Phase.CONFIRMED


def _pods_against_books(
    there: Mapping[str, ObservedPod], settled: Mapping[str, Holding], moving: set[str]
) -> Iterator[Finding]:
    for uid, seen in there.items():
        if seen.problem:
            kind = Kind.UNRECORDED if seen.problem == WITHOUT_ALLOCATION else Kind.UNREADABLE_ANNOTATION
            yield _finding(kind, seen.node, "", _name(seen), f"the pod {seen.problem}")
        elif uid not in moving:
            yield from _one_pod(seen, settled.get(uid))
    for uid, held in settled.items():
        if uid not in there and held.booked:
            yield from (
                _finding(Kind.BOOKING_WITHOUT_POD, held.node, each.uuid, _holder(held), _amount(each))
                for each in held.booked
            )


def _one_pod(seen: ObservedPod, held: Holding | None) -> Iterator[Finding]:
    """Yield the differences between a pod's annotation and its booking, device by device."""
    annotated = {each.uuid: each for each in seen.booked}
    booked = {each.uuid: each for each in held.booked} if held is not None and held.node == seen.node else {}
    for uuid, each in annotated.items():
        if uuid not in booked:
            yield _finding(Kind.ANNOTATION_WITHOUT_BOOKING, seen.node, uuid, _name(seen), _amount(each))
        elif each != booked[uuid]:
            found = f"{_amount(each)} in the annotation, {_amount(booked[uuid])} in the books"
            yield _finding(Kind.AMOUNTS_DIFFER, seen.node, uuid, _name(seen), found)
    for uuid, each in booked.items():
        if uuid not in annotated:
            yield _finding(Kind.BOOKING_WITHOUT_ANNOTATION, seen.node, uuid, _name(seen), _amount(each))


def _devices_against_books(books: Books) -> Iterator[Finding]:
    known = {(device.node, device.uuid): device for device in books.devices}
    sums: dict[tuple[str, str], list[int]] = {}
    for held in books.holdings.values():
        for each in held.booked:
            total = sums.setdefault((held.node, each.uuid), [0, 0])
            total[0] += each.memory_mib
            total[1] += each.compute_milli
            if held.node in books.reported and (held.node, each.uuid) not in known:
                yield _finding(Kind.UNKNOWN_UUID, held.node, each.uuid, _holder(held), _amount(each))
    for at, (mib, milli) in sums.items():
        device = known.get(at)
        if device is not None and (mib > device.capacity_mib or milli > device.capacity_milli):
            found = (
                f"{mib} of {device.capacity_mib} MiB and {milli / 10:g} of {device.capacity_milli / 10:g} % are booked"
            )
            yield _finding(Kind.DEVICE_OVER, *at, _holders(books, at), found)


def _measured_against_books(books: Books, there: Mapping[str, ObservedPod]) -> Iterator[Finding]:
    for device in books.devices:
        if device.is_contradicted:
            yield _finding(Kind.TWO_OWNERS, device.node, device.uuid, "", "handed out twice")
        if device.foreign_mib > FOREIGN_TOLERANCE_MIB:
            found = f"{device.foreign_mib} MiB are held by processes of no pod"
            yield _finding(Kind.PROCESS_WITHOUT_POD, device.node, device.uuid, "", found)
        for uid, mib in device.users.items():
            held = books.holdings.get(uid)
            if held is None or all(each.uuid != device.uuid for each in held.booked):
                name = _name(there[uid]) if uid in there else f"UID {uid}"
                yield _finding(Kind.USE_WITHOUT_BOOKING, device.node, device.uuid, name, f"{mib} MiB are in use")


def _holders(books: Books, at: tuple[str, str]) -> str:
    node, uuid = at
    holders = (held for held in books.holdings.values() if held.node == node)
    return ", ".join(sorted(_holder(held) for held in holders if any(each.uuid == uuid for each in held.booked)))


def _finding(kind: Kind, node: str, uuid: str, pod: str, found: str) -> Finding:
    return Finding(kind, node, uuid, pod, found, ADVICE[kind])


def _amount(booking: DeviceBooking) -> str:
    return f"{booking.memory_mib} MiB and {booking.compute_milli / 10:g} %"


def _name(seen: ObservedPod) -> str:
    return f"{seen.pod.namespace}/{seen.pod.name}"


def _holder(held: Holding) -> str:
    return f"{held.pod.namespace}/{held.pod.name}"
