"""Fleets in one line: ``fleet(a=[gpu(), gpu(free_mib=100)], b=[gpu(A100)])``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scoring.catalog import DeviceKind, device_kind
from scoring.draft import FleetDraft
from scoring.fleet import DeviceState, Fleet, ModeCode, NodeState, Row
from scoring.outlook import Outlook
from scoring.pipeline import PlacedPod, allocation_on, evaluate, levels, verdict
from scoring.registry import build_policies
from scoring.request import ContainerAsk, ContainerKind, PodRequest
from scoring.status import Reason

GIB = 1024

T4 = device_kind("Tesla T4", compute_capability=(7, 5), total_mib=16_384)
L4 = device_kind("NVIDIA L4", compute_capability=(8, 9), total_mib=23_034)
A100_40 = device_kind("NVIDIA A100-SXM4-40GB", compute_capability=(8, 0), total_mib=40_960)
A100 = device_kind("NVIDIA A100-SXM4-80GB", compute_capability=(8, 0), total_mib=81_920)
H20 = device_kind("NVIDIA H20", compute_capability=(9, 0), total_mib=97_871)
H200 = device_kind("NVIDIA H200", compute_capability=(9, 0), total_mib=143_771)
MIG_10GB = device_kind(
    "NVIDIA A100-SXM4-80GB", compute_capability=(8, 0), total_mib=9_728, mig_profile="1g.10gb", sm_milli=142
)
MIG_20GB = device_kind(
    "NVIDIA A100-SXM4-80GB", compute_capability=(8, 0), total_mib=19_968, mig_profile="2g.20gb", sm_milli=285
)

POLICIES = build_policies()
BINPACK = POLICIES["binpack"]


@dataclass(frozen=True)
class Gpu:
    """One device; ``uuid`` None is named after its node and slot."""

    kind: DeviceKind
    columns: tuple[tuple[str, float], ...]
    uuid: str | None = None


def gpu(kind: DeviceKind = T4, *, free_mib: int | None = None, uuid: str | None = None, **columns: float) -> Gpu:
    """Return a healthy empty device whose memory is all schedulable; ``free_mib`` books the rest of it."""
    capacity = int(columns.setdefault("capacity_mib", kind.total_mib))
    columns.setdefault("capacity_milli", kind.sm_milli)
    columns.setdefault("device_state", DeviceState.HEALTHY)
    columns.setdefault("mode", ModeCode.TIME_SLICING if kind.mig_profile is None else ModeCode.MIG)
    if free_mib is not None:
        columns["booked_mib"] = capacity - free_mib - int(columns.get("foreign_mib", 0))
        columns.setdefault("sharers", int(columns["booked_mib"] > 0))
    return Gpu(kind, tuple(columns.items()), uuid)


@dataclass(frozen=True)
class Host:
    """One node with what is not its devices."""

    devices: tuple[Gpu, ...]
    columns: tuple[tuple[str, float], ...]


def node(*devices: Gpu, **columns: float) -> Host:
    """Return a node with a fresh report and CPU in plenty."""
    return Host(devices, tuple({"node_state": NodeState.FRESH, "cpu_capacity_milli": 96_000, **columns}.items()))


def draft_of(nodes: dict[str, Host | Sequence[Gpu]]) -> FleetDraft:
    draft = FleetDraft()
    for name, host in nodes.items():
        add_node(draft, name, host)
    return draft


def add_node(draft: FleetDraft, name: str, host: Host | Sequence[Gpu]) -> Row:
    whole = host if isinstance(host, Host) else node(*host)
    row = draft.add_node(name)
    names = sorted({column for device in whole.devices for column, _ in device.columns})
    columns = {column: [_value(device, column) for device in whole.devices] for column in names}
    columns["kind"] = [draft.kind_index(device.kind) for device in whole.devices]
    uuids = tuple(device.uuid or f"GPU-{name}-{slot}" for slot, device in enumerate(whole.devices))
    draft.set_devices(row, uuids, columns)
    draft.set_node(row, **dict(whole.columns))
    return row


def _value(device: Gpu, column: str) -> float:
    absent = {"load": math.nan, "numa": -1.0, "link": -1.0, "resource": -1.0}
    return dict(device.columns).get(column, absent.get(column, 0))


def fleet(**nodes: Host | Sequence[Gpu]) -> Fleet:
    return draft_of(nodes).freeze()


def share(
    memory_mib: int | None = None,
    compute_milli: int | None = None,
    count: int = 1,
    name: str = "main",
    kind: ContainerKind = ContainerKind.APP,
) -> ContainerAsk:
    return ContainerAsk(name, count, memory_mib, compute_milli, kind)


def whole(count: int = 1, name: str = "main", kind: ContainerKind = ContainerKind.APP) -> ContainerAsk:
    return ContainerAsk(name, count, None, 1000, kind)


def asks(*containers: ContainerAsk, **values: object) -> PodRequest:
    return PodRequest(containers=containers, **values)  # type: ignore[arg-type]


def reasons(request: PodRequest, of: Fleet, policy: str = "binpack") -> dict[str, Reason | None]:
    """Return each node's reason; None where the request fits."""
    found = evaluate(request, of, POLICIES[policy], Outlook.empty())
    return {name: verdict(found, row).reason for row, name in enumerate(of.names)}


def reason(request: PodRequest, *devices: Gpu, policy: str = "binpack") -> Reason | None:
    """Return the reason of a fleet of one node."""
    return reasons(request, fleet(a=devices), policy)["a"]


def winner(request: PodRequest, of: Fleet, policy: str = "binpack", outlook: Outlook | None = None) -> str | None:
    """Return the node that gets level 10."""
    found = evaluate(request, of, POLICIES[policy], outlook or Outlook.empty())
    rows = [row for row in range(len(of)) if verdict(found, row).fits]
    if not rows:
        return None
    given = levels(found.score[rows], of.order[rows])
    return of.names[rows[int(given.argmax())]]


def place_on(request: PodRequest, of: Fleet, name: str = "a", policy: str = "binpack") -> PlacedPod:
    placed = allocation_on(request, of, of.rows[name], POLICIES[policy], Outlook.empty())
    assert isinstance(placed, PlacedPod), placed
    return placed


def slots_on(request: PodRequest, of: Fleet, name: str = "a", policy: str = "binpack") -> list[tuple[int, ...]]:
    """Return the slots that each container gets."""
    uuids = of.uuids[of.rows[name]]
    given = place_on(request, of, name, policy).allocation.containers
    return [tuple(uuids.index(one.uuid) for one in shares) for _, shares in given]


def book(draft: FleetDraft, name: str, placed: PlacedPod, sign: int = 1) -> None:
    for slot, mib, milli in placed.booked:
        draft.book(draft.rows[name], slot, sign * mib, sign * milli, sign)


def run_all(requests: Sequence[PodRequest], draft: FleetDraft, policy: str = "binpack") -> list[str | None]:
    """Place requests one after the other as kube-scheduler would; return each one's node."""
    nodes: list[str | None] = []
    for request in requests:
        of = draft.freeze()
        name = winner(request, of, policy)
        if name is not None:
            book(draft, name, place_on(request, of, name, policy))
        nodes.append(name)
    return nodes
