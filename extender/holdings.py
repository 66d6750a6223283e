"""What pods hold, as values: identities, holdings and what a device books for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

from extender.errors import BoundElsewhere
from scoring.outlook import Outlook
from scoring.registry import Policy
from scoring.request import Allocation, PluginAsk, PodRequest

Token = NewType("Token", int)
"""Names one ``assume``; only its own ``forget`` and ``confirm`` carry it."""


class Phase(StrEnum):
    """How sure a holding is: reserved by a bind that is under way, or known to be bound."""

    ASSUMED = "assumed"
    CONFIRMED = "confirmed"


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """Which pod. A pod that is made again under the same name has another UID and is another pod."""

    uid: str
    namespace: str
    name: str
    priority: int = 0


@dataclass(frozen=True, slots=True)
class DeviceBooking:
    """What one device books for one pod: the most that any phase of it takes, in MiB and thousandths."""

    uuid: str
    memory_mib: int
    compute_milli: int


@dataclass(frozen=True, slots=True)
class Holding:
    """What one pod holds of one node.

    ``allocation``       None for a pod that holds no device: its CPU and host memory count all the same
    ``token``            None once confirmed
    ``since``            when it was placed, seconds of the extender's clock; None if that was before we looked
    ``is_terminating``   deletion was asked for; it still counts until the pod is gone
    ``outcome_unknown``  its Binding was sent and nobody knows yet whether it landed
    ``problem``          why the pod's share cannot be counted, in words; its node takes nothing more
    ``plugin``           what it asks of NVIDIA's device plugin, which chooses the devices
    """

    pod: PodIdentity
    node: str
    phase: Phase
    allocation: Allocation | None = None
    booked: tuple[DeviceBooking, ...] = ()
    cpu_milli: int = 0
    host_memory_mib: int = 0
    token: Token | None = None
    since: float | None = None
    is_terminating: bool = False
    outcome_unknown: bool = False
    problem: str = ""
    plugin: tuple[PluginAsk, ...] = ()


@dataclass(frozen=True, slots=True)
class ObservedPod:
    """What a watch or a read says of a pod.

    ``node`` and ``nominated`` are empty where the pod has none; ``is_over`` means that it ran to its end.
    ``request`` is None where what it asks cannot be understood; ``plugin``, what it asks of NVIDIA's device plugin, is
    told even then, for kubelet hands it out all the same. ``waits_for`` is why kube-scheduler found no node, in
    its own words.
    """

    pod: PodIdentity
    node: str = ""
    nominated: str = ""
    is_over: bool = False
    is_terminating: bool = False
    request: PodRequest | None = None
    allocation: Allocation | None = None
    booked: tuple[DeviceBooking, ...] = ()
    problem: str = ""
    waits_for: str = ""
    plugin: tuple[PluginAsk, ...] = ()


@dataclass(frozen=True, slots=True)
class Reservation:
    """What ``assume`` reserved: the token that settles it, and the shares to write."""

    token: Token
    node: str
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class Placing:
    """One pod to place on one node, and how."""

    pod: PodIdentity
    request: PodRequest
    node: str
    policy: Policy
    outlook: Outlook


def assumption_of(placing: Placing, placed: Allocation, booked: Iterable[DeviceBooking], token: Token) -> Holding:
    """Return what a pod holds while its bind is under way; when it was placed is for the caller to add."""
    request = placing.request
    return Holding(
        pod=placing.pod,
        node=placing.node,
        phase=Phase.ASSUMED,
        allocation=placed,
        booked=tuple(booked),
        cpu_milli=request.cpu_milli,
        host_memory_mib=request.host_memory_mib,
        token=token,
        plugin=request.plugin,
    )


def holding_of(seen: ObservedPod, since: float | None) -> Holding:
    """Return what a bound pod holds by its annotations; ``since`` is when it was placed, None if before we looked."""
    request = seen.request
    return Holding(
        pod=seen.pod,
        node=seen.node,
        phase=Phase.CONFIRMED,
        allocation=seen.allocation,
        booked=seen.booked,
        cpu_milli=request.cpu_milli if request is not None else 0,
        host_memory_mib=request.host_memory_mib if request is not None else 0,
        since=since,
        is_terminating=seen.is_terminating,
        problem=seen.problem,
        plugin=seen.plugin,
    )


def held_again(held: Holding, placing: Placing) -> Reservation:
    """Return the reservation that a pod has on this very node; raise BoundElsewhere where it holds another."""
    if (
        held.node == placing.node
        and held.phase is Phase.ASSUMED
        and held.token is not None
        and held.allocation is not None
    ):
        return Reservation(held.token, held.node, held.allocation)
    state = "bound to" if held.phase is Phase.CONFIRMED else "being bound to"
    raise BoundElsewhere(f"pod {held.pod.namespace}/{held.pod.name} is {state} node {held.node}")
