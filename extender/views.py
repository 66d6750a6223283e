"""The state as people and programs read it: every node with its devices, shares, load and health."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import TypedDict

import numpy as np

from extender.hardware import DeviceFacts
from extender.holdings import Holding
from extender.noderecord import NodeRecord
from extender.store import ClusterStore
from scoring.fleet import DeviceState, Fleet, ModeCode, NodeState
from scoring.plugin import offer_of

_AT_ONCE = 100


class ShareView(TypedDict):
    """What one container holds of a device."""

    pod_uid: str
    namespace: str
    pod: str
    container: str
    memory_mib: int
    compute_milli: int
    phase: str


class DeviceView(TypedDict):
    """One device; ``load`` is None when it is not known."""

    uuid: str
    product: str
    architecture: str
    mig_profile: str | None
    mode: str
    state: str
    health: str
    problem: str
    capacity_mib: int
    capacity_milli: int
    booked_mib: int
    booked_milli: int
    foreign_mib: int
    load: float | None
    shares: list[ShareView]


class PluginView(TypedDict):
    """One resource of NVIDIA's device plugin on a node, in replicas; ``free`` ones on healthy devices."""

    resource: str
    replicas: int
    taken: int
    free: int


class NodeView(TypedDict):
    """One node; ``report_age_s`` is None before its first report, ``problems`` says why it is conflicted."""

    name: str
    state: str
    report_age_s: float | None
    problems: list[str]
    totals: dict[str, int] | None
    plugin: list[PluginView]
    devices: list[DeviceView]


class FleetView(TypedDict):
    """All nodes with devices, by name. ``overbooked`` names devices that gave away more than they have."""

    generation: int
    nodes: list[NodeView]
    overbooked: list[dict[str, object]]


async def fleet_view(store: ClusterStore, now: float, pause: Callable[[], Awaitable[None]]) -> FleetView:
    """Return every node that has, or is known to have, devices, with a pause every hundred so that decisions go on.

    Each node is as it is when its turn comes; one that leaves before that is not named.
    """
    nodes = []
    for number, record in enumerate(sorted(store.nodes(), key=lambda record: record.name), 1):
        if store.node(record.name) is record and _is_of_interest(store, record):
            nodes.append(node_view(store, record, store.snapshot(), now))
        if number % _AT_ONCE == 0:
            await pause()
    return {
        "generation": store.generation,
        "nodes": nodes,
        "overbooked": [
            {"node": node, "uuid": uuid, "pods": [f"{pod.namespace}/{pod.name}" for pod in pods]}
            for (node, uuid), pods in sorted(store.overbooked().items())
        ],
    }


def node_view(store: ClusterStore, record: NodeRecord, fleet: Fleet, now: float) -> NodeView:
    """Return one node."""
    holdings = tuple(store.ledger.on_node(record.name))
    return {
        "name": record.name,
        "state": NodeState(int(fleet.node_state[record.row])).name.lower(),
        "report_age_s": None if record.arrived_at is None else round(now - record.arrived_at, 3),
        "problems": list(store.ledger.problems(record.name)),
        "totals": store.totals(record.name),
        "plugin": _plugin_view(fleet, record),
        "devices": [
            _device_view(fleet, record, slot, facts, holdings) for slot, facts in enumerate(record.devices.values())
        ],
    }


def _plugin_view(fleet: Fleet, record: NodeRecord) -> list[PluginView]:
    resources = sorted({each.resource for each in record.replicas.values()})
    node = fleet.take(np.array([record.row])) if resources else fleet
    views = []
    for resource in resources:
        offer = offer_of(node, resource)
        serving, free = int(offer.serving[0]), int(offer.free[0])
        view = PluginView(resource=resource, replicas=int(offer.replicas[0]), taken=serving - free, free=max(free, 0))
        views.append(view)
    return views


def _is_of_interest(store: ClusterStore, record: NodeRecord) -> bool:
    return bool(record.devices or record.name in store.unreported or store.ledger.problems(record.name))


def _device_view(
    fleet: Fleet, record: NodeRecord, slot: int, facts: DeviceFacts, holdings: tuple[Holding, ...]
) -> DeviceView:
    load = float(fleet.load[slot, record.row])
    return {
        "uuid": facts.uuid,
        "product": facts.kind.product,
        "architecture": facts.kind.architecture.name.lower(),
        "mig_profile": facts.kind.mig_profile,
        "mode": ModeCode(facts.mode).name.lower().replace("_", "-"),
        "state": DeviceState(facts.state).name.lower(),
        "health": str(facts.health),
        "problem": facts.problem,
        "capacity_mib": facts.capacity_mib,
        "capacity_milli": facts.capacity_milli,
        "booked_mib": int(fleet.booked_mib[slot, record.row]),
        "booked_milli": int(fleet.booked_milli[slot, record.row]),
        "foreign_mib": facts.foreign_mib,
        "load": None if math.isnan(load) else round(load, 4),
        "shares": [share for holding in holdings for share in _shares_on(holding, facts.uuid)],
    }


def _shares_on(holding: Holding, uuid: str) -> list[ShareView]:
    containers = holding.allocation.containers if holding.allocation is not None else ()
    return [
        {
            "pod_uid": holding.pod.uid,
            "namespace": holding.pod.namespace,
            "pod": holding.pod.name,
            "container": container,
            "memory_mib": share.memory_mib,
            "compute_milli": share.compute_milli,
            "phase": str(holding.phase),
        }
        for container, shares in containers
        for share in shares
        if share.uuid == uuid
    ]
