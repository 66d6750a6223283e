"""Builders: a test names what matters to it and gets something plausible for the rest."""

from __future__ import annotations

import itertools

from extender.holdings import DeviceBooking, ObservedPod, Placing, PodIdentity
from extender.noderecord import NodeFacts
from extender.objects import Container, Metadata, Node, NodeStatus, Pod, PodSpec, PodStatus, Resources
from extender.settings import Settings
from extender.store import ClusterStore
from node_agent.report import Device, Report
from scoring.outlook import Outlook
from scoring.registry import build_policies
from scoring.request import Allocation, ContainerAsk, PodRequest, Share, SharingMode

PREFIX = "tangram.dev/"
T4_MIB = 15_360
A100_MIB = 81_920

_sequences = itertools.count(1)
_uids = itertools.count(1)


def device(uuid: str = "GPU-0", **values: object) -> Device:
    defaults: dict[str, object] = {
        "name": "NVIDIA A100-SXM4-80GB",
        "compute_capability": (8, 0),
        "total_mib": A100_MIB,
        "utilisation": 0.0,
    }
    return Device(uuid=uuid, **{**defaults, **values})  # type: ignore[arg-type]


def devices(count: int, **values: object) -> tuple[Device, ...]:
    return tuple(device(f"GPU-{number}", **values) for number in range(count))


def report(node: str = "n1", *held: Device, **values: object) -> Report:
    defaults: dict[str, object] = {
        "version": 1,
        "agent_run": "run-1",
        "sequence": next(_sequences),
        "driver": "550.54",
        "cuda": "12.4",
    }
    return Report(node=node, devices=held, **{**defaults, **values})  # type: ignore[arg-type]


def node_facts(name: str = "n1", **values: object) -> NodeFacts:
    return NodeFacts(name, **{"cpu_milli": 64_000, "host_memory_mib": 262_144, **values})  # type: ignore[arg-type]


def identity(name: str = "p", uid: str | None = None, priority: int = 0) -> PodIdentity:
    return PodIdentity(uid or f"uid-{name}", "default", name, priority)


def share_request(memory_mib: int | None = 8192, compute_milli: int | None = None, count: int = 1) -> PodRequest:
    return PodRequest(containers=(ContainerAsk("main", count, memory_mib, compute_milli),))


def whole_request(count: int = 1) -> PodRequest:
    return PodRequest(containers=(ContainerAsk("main", count, None, 1000),))


def placing(request: PodRequest, name: str = "p", node: str = "n1", policy: str = "binpack", **who: object) -> Placing:
    return Placing(identity(name, **who), request, node, build_policies()[policy], Outlook.empty())  # type: ignore[arg-type]


def store_with(*held: Device, node: str = "n1", now: float = 1000.0, **settings: object) -> ClusterStore:
    store = ClusterStore(Settings(**settings))  # type: ignore[arg-type]
    store.set_node(node_facts(node))
    store.apply_report(report(node, *held), now)
    return store


def bound(
    name: str, uuid: str = "GPU-0", memory_mib: int = 8192, compute_milli: int = 100, node: str = "n1", **values: object
) -> ObservedPod:
    share = Share(uuid, memory_mib, compute_milli, SharingMode.TIME_SLICING)
    who = values.pop("pod", identity(name))
    return ObservedPod(
        pod=who,  # type: ignore[arg-type]
        node=node,
        request=values.pop("request", share_request(memory_mib, compute_milli)),  # type: ignore[arg-type]
        allocation=Allocation((("main", (share,)),), "binpack"),
        booked=(DeviceBooking(uuid, memory_mib, compute_milli),),
        **values,  # type: ignore[arg-type]
    )


def pod(
    name: str = "p",
    *,
    uid: str | None = None,
    node: str = "",
    phase: str = "Pending",
    annotations: dict[str, str] | None = None,
    priority: int | None = None,
    nominated: str | None = None,
    namespace: str = "default",
    **amounts: int | str,
) -> Pod:
    """Return a pod with one container; amounts are our resources with underscores (``gpu_memory=8192``)."""
    limits = {PREFIX + resource.replace("_", "-"): str(amount) for resource, amount in amounts.items()}
    return Pod(
        metadata=Metadata(name=name, namespace=namespace, uid=uid or f"uid-{name}", annotations=annotations),
        spec=PodSpec(
            node_name=node,
            priority=priority,
            containers=(Container(name="main", resources=Resources(requests=limits, limits=limits)),),
        ),
        status=PodStatus(phase=phase, nominated_node_name=nominated),
    )


def node(name: str = "n1", **capacity: int | str) -> Node:
    amounts = {PREFIX + resource.replace("_", "-"): str(amount) for resource, amount in capacity.items()}
    amounts |= {"cpu": "64", "memory": "256Gi"}
    return Node(metadata=Metadata(name=name, uid=f"node-{name}"), status=NodeStatus(amounts, amounts))
