"""Pods and nodes as the API server shows them -> what the store takes in; the handlers between reflector and store."""

from __future__ import annotations

from collections.abc import Callable

from extender.allocation import ALLOCATION_KEY, decode_allocation
from extender.changes import ObjectKey
from extender.errors import InvalidAllocation
from extender.holdings import DeviceBooking, ObservedPod, PodIdentity
from extender.noderecord import NodeFacts
from extender.objects import Container, Node, Pod
from extender.podspec import PLUGIN_MIG_PREFIX, PLUGIN_RESOURCES, understood
from extender.quantity import MIB, MOST_COUNTED, parse_quantity
from extender.totals import COMPUTE, DEVICES, MEMORY
from scoring.errors import InvalidRequest
from scoring.pipeline import booked_by
from scoring.request import Allocation, PodRequest

CORDONED_KEY = "cordoned"
_MOST_CORDONED = 128
WITHOUT_ALLOCATION = "was bound by somebody else and holds devices that nobody recorded"


def identity(pod: Pod) -> PodIdentity:
    """Return which pod this is; a pod without a priority has 0."""
    return PodIdentity(pod.metadata.uid, pod.metadata.namespace, pod.metadata.name, pod.spec.priority or 0)


def observe_pod(pod: Pod, prefix: str) -> ObservedPod:
    """Return what the store has to know of a pod. Never raises: what cannot be understood becomes a ``problem``."""
    request, plugin = understood(pod, prefix)
    asks_gpu = bool(request.containers) if request is not None else _names_ours(pod, prefix)
    allocation, problem = None, ""
    if pod.spec.node_name and prefix + ALLOCATION_KEY in pod.annotations:
        allocation, problem = _allocation(pod.annotations[prefix + ALLOCATION_KEY])
    elif pod.spec.node_name and asks_gpu:
        problem = WITHOUT_ALLOCATION
    return ObservedPod(
        pod=identity(pod),
        node=pod.spec.node_name,
        nominated=pod.status.nominated_node_name or "",
        is_over=pod.is_terminal,
        is_terminating=pod.metadata.deletion_timestamp is not None,
        request=request,
        allocation=allocation,
        booked=booked_devices(allocation, request) if allocation is not None else (),
        problem=problem,
        waits_for=_unscheduled(pod),
        plugin=plugin,
    )


def booked_devices(allocation: Allocation, request: PodRequest | None) -> tuple[DeviceBooking, ...]:
    """Return what each device books for an allocation; without the request every container counts at once."""
    kinds = {ask.name: ask.kind for ask in request.containers} if request is not None else {}
    booked = booked_by(allocation, kinds)
    return tuple(DeviceBooking(uuid, mib, milli) for uuid, (mib, milli) in sorted(booked.items()))


def observe_node(node: Node, prefix: str) -> NodeFacts:
    """Return what the store has to know of a node. Amounts that cannot be read count as absent."""
    allocatable, capacity = node.status.allocatable or {}, node.status.capacity or {}
    totals = {name: _whole(capacity.get(prefix + name)) for name in (DEVICES, MEMORY, COMPUTE)}
    return NodeFacts(
        name=node.metadata.name,
        cpu_milli=_scaled(allocatable.get("cpu"), 1000, 1),
        host_memory_mib=_scaled(allocatable.get("memory"), 1, MIB),
        totals=tuple((name, amount) for name, amount in totals.items() if amount),
        is_schedulable=not node.spec.unschedulable,
        cordoned=_cordoned((node.metadata.annotations or {}).get(prefix + CORDONED_KEY, "")),
        has_plugin=any(_is_plugins(name) and _whole(amount) for name, amount in capacity.items()),
    )


def _cordoned(text: str) -> frozenset[str]:
    """Return the UUIDs of an operator's comma list, within what a node can have."""
    uuids = [part.strip() for part in text.split(",")]
    return frozenset([uuid for uuid in uuids if uuid][:_MOST_CORDONED])


def _is_plugins(resource: str) -> bool:
    return resource in PLUGIN_RESOURCES or resource.startswith(PLUGIN_MIG_PREFIX)


def _unscheduled(pod: Pod) -> str:
    """Return kube-scheduler's last word on a pod that has no node yet, empty where there is none."""
    conditions = () if pod.spec.node_name else pod.status.conditions or ()
    words = (each.message for each in conditions if each.type == "PodScheduled" and each.status == "False")
    return next((text for text in words if text), "")


def _names_ours(pod: Pod, prefix: str) -> bool:
    names = {prefix + name for name in (DEVICES, MEMORY, COMPUTE)}
    named = (resource for container in pod.all_containers() for resource in _named(container))
    return any(resource in names for resource in named)


def _named(container: Container) -> set[str]:
    resources = container.resources
    return set() if resources is None else {*(resources.requests or ()), *(resources.limits or ())}


def _allocation(text: str) -> tuple[Allocation | None, str]:
    try:
        return decode_allocation(text), ""
    except InvalidAllocation as error:
        return None, str(error)


def _whole(text: str | None) -> int:
    return _scaled(text, 1, 1)


def _scaled(text: str | None, multiply: int, divide: int) -> int:
    if text is None:
        return 0
    try:
        return min(int(parse_quantity(text, "quantity") * multiply / divide), MOST_COUNTED)
    except InvalidRequest:
        return 0


class PodHandler:
    """Takes pods from the reflector to the store."""

    def __init__(
        self,
        prefix: str,
        on_pod: Callable[[ObservedPod], None],
        on_gone: Callable[[str], None],
        on_listed: Callable[[], None],
    ) -> None:
        self._prefix = prefix
        self._on_pod = on_pod
        self._on_gone = on_gone
        self._on_listed = on_listed

    def on_set(self, item: Pod) -> None:
        """Take in a pod that is new or has changed."""
        self._on_pod(observe_pod(item, self._prefix))

    def on_delete(self, key: ObjectKey) -> None:
        """Free what a pod held: this one, not another that lives under its name by now."""
        self._on_gone(key.uid)

    def on_synced(self) -> None:
        """Note that the list of pods is in."""
        self._on_listed()


class NodeHandler:
    """Takes nodes from the reflector to the store."""

    def __init__(
        self,
        prefix: str,
        on_node: Callable[[NodeFacts], None],
        on_gone: Callable[[str], None],
        on_listed: Callable[[], None],
    ) -> None:
        self._prefix = prefix
        self._on_node = on_node
        self._on_gone = on_gone
        self._on_listed = on_listed

    def on_set(self, item: Node) -> None:
        """Take in a node that is new or has changed."""
        self._on_node(observe_node(item, self._prefix))

    def on_delete(self, key: ObjectKey) -> None:
        """Forget a node."""
        self._on_gone(key.name)

    def on_synced(self) -> None:
        """Note that the list of nodes is in."""
        self._on_listed()
