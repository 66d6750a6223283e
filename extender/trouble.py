"""Devices that somebody should look at, and the pods on them: what the store says, as values.

A device is in trouble where it takes no new pods, whatever the cause, or gave away more than it has. Nothing here
remembers anything; who tells it, and when, is ``alarms``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from extender.hardware import Cause
from extender.holdings import Holding, PodIdentity
from extender.kubeapi import EventNote, EventType
from extender.store import ClusterStore

OVERBOOKED = "overbooked"
_OVERBOOKED_WORDS = "more of it is given away than it has"
_PODS_NAMED = 12

REASONS = {
    Cause.FAULT: "GpuFault",
    Cause.LOST: "GpuLost",
    Cause.CORDONED: "GpuCordoned",
    Cause.CONTRADICTION: "GpuClaimedTwice",
    Cause.DRIVER: "GpuDriverTrouble",
    Cause.NOT_READY: "GpuNotReady",
    Cause.NO_MEMORY: "GpuWithoutMemory",
    OVERBOOKED: "GpuOverbooked",
}
"""The word in the event for each kind of trouble."""

RETURNED = "GpuReturned"
_PLANNED = frozenset({Cause.CORDONED, Cause.NOT_READY})
"""What an operator did: told of the node, but no alarm for the pods that go on running."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a trouble is; one device may be out and overbooked at one time."""

    node: str
    uuid: str
    is_overbooked: bool = False


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong, as one of ``REASONS`` and in words."""

    kind: str
    words: str


Troubles = dict[Place, Trouble]


def out_of_use(store: ClusterStore, node: str) -> Troubles:
    """Return the devices of a node that take no new pods; none for a node that is gone."""
    record = store.node(node)
    devices = record.devices.values() if record is not None else ()
    return {
        Place(node, facts.uuid): Trouble(facts.cause, facts.problem)
        for facts in devices
        if facts.cause is not Cause.NONE
    }


def overbooked(store: ClusterStore) -> Troubles:
    """Return the devices that gave away more than they have."""
    return {
        Place(node, uuid, is_overbooked=True): Trouble(OVERBOOKED, _OVERBOOKED_WORDS)
        for node, uuid in store.overbooked()
    }


def pods_on(store: ClusterStore, place: Place) -> tuple[PodIdentity, ...]:
    """Return the pods that hold a share of a device, by name."""
    uids = store.ledger.device(place.node, place.uuid).uids
    holdings: Iterable[Holding | None] = (store.ledger.get(uid) for uid in uids)
    return tuple(sorted((each.pod for each in holdings if each is not None), key=lambda pod: (pod.namespace, pod.name)))


def notes_of(place: Place, trouble: Trouble, pods: tuple[PodIdentity, ...]) -> Iterator[EventNote]:
    """Yield the events of a new trouble: one about the node that names the pods, and one about each pod."""
    reason, is_planned = REASONS[trouble.kind], trouble.kind in _PLANNED
    what = f"GPU {place.uuid}: {trouble.words}"
    kind = EventType.NORMAL if is_planned else EventType.WARNING
    yield EventNote("Node", "", place.node, place.node, reason, f"{what}. {_named(pods)}", kind)
    for pod in () if is_planned else pods:
        message = f"The pod's {what}, on node {place.node}."
        yield EventNote("Pod", pod.namespace, pod.name, pod.uid, reason, message)


def return_note(place: Place) -> EventNote:
    """Return the event that tells that a trouble is over."""
    words = "no more is given away than it has" if place.is_overbooked else "takes pods again"
    return EventNote("Node", "", place.node, place.node, RETURNED, f"GPU {place.uuid}: {words}.", EventType.NORMAL)


def _named(pods: tuple[PodIdentity, ...]) -> str:
    if not pods:
        return "No pod is on it."
    names = ", ".join(f"{pod.namespace}/{pod.name}" for pod in pods[:_PODS_NAMED])
    more = len(pods) - _PODS_NAMED
    return f"Pods on it: {names}" + (f" and {more} more." if more > 0 else ".")
