"""What kube-scheduler itself counts: CPU, memory, pods and extended resources of every node, assumed pods included.

Amounts are whole thousandths of a resource's unit. ``tangram.dev/gpu`` is a ceiling that the scheduler is told to
ignore (design section 2); the other two are counted, so totals cannot be oversubscribed between filter and bind.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from extender.effective import effective_amount
from extender.objects import Metadata, NodeStatus, PodSpec, PodStatus
from extender.quantity import parse_quantity
from extender.reflection import Kind
from scoring.request import ContainerKind

IGNORED = frozenset({"tangram.dev/gpu"})
MANAGED = frozenset({"tangram.dev/gpu", "tangram.dev/gpu-memory", "tangram.dev/gpu-compute"})
_PODS = "pods"

Amounts = Mapping[str, int]


class SeenPod(msgspec.Struct, frozen=True):
    """A pod as the API server shows it; ``spec`` stays as it came, because filter is sent the whole of it."""

    metadata: Metadata
    spec: msgspec.Raw
    status: PodStatus = PodStatus()


class SeenNode(msgspec.Struct, frozen=True):
    """The part of a node that the scheduler counts with."""

    metadata: Metadata
    status: NodeStatus = NodeStatus()


SEEN_PODS: Kind[SeenPod] = Kind("scheduler-pods", "/api/v1/pods", msgspec.json.Decoder(SeenPod))
SEEN_NODES: Kind[SeenNode] = Kind("scheduler-nodes", "/api/v1/nodes", msgspec.json.Decoder(SeenNode))
_SPEC = msgspec.json.Decoder(PodSpec)


def read_spec(pod: SeenPod) -> PodSpec:
    """Return the parts of a pod's spec that matter here."""
    return _SPEC.decode(pod.spec)


def amounts_of(spec: PodSpec) -> dict[str, int]:
    """Return what a pod takes of a node, one pod included; raise InvalidRequest for an amount that is no quantity."""
    parts: dict[str, list[tuple[ContainerKind, int]]] = {}
    for container in spec.init_containers or ():
        kind = ContainerKind.SIDECAR if container.restart_policy == "Always" else ContainerKind.INIT
        _collect(parts, kind, container.resources.requests if container.resources else None)
    for container in spec.containers or ():
        _collect(parts, ContainerKind.APP, container.resources.requests if container.resources else None)
    return {_PODS: 1000, **{name: math.ceil(effective_amount(each)) for name, each in parts.items()}}


def is_managed(amounts: Amounts) -> bool:
    """Tell whether a pod asks for a resource that the extender manages."""
    return not MANAGED.isdisjoint(amounts)


@dataclass(slots=True)
class _Node:
    allocatable: dict[str, int]
    used: dict[str, int] = field(default_factory=dict)


class NodeFit:
    """Nodes, and what pods take of them."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._pods: dict[str, tuple[str, Amounts]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def set_node(self, name: str, allocatable: Mapping[str, str]) -> bool:
        """Take in a node's totals; return whether anything changed."""
        amounts = {key: _milli(text, key) for key, text in allocatable.items()}
        known = self._nodes.get(name)
        if known is not None and known.allocatable == amounts:
            return False
        used = _sum(taken for node, taken in self._pods.values() if node == name) if known is None else known.used
        self._nodes[name] = _Node(amounts, used)
        return True

    def remove_node(self, name: str) -> None:
        """Forget a node; its pods stay until they are gone."""
        self._nodes.pop(name, None)

    def place(self, uid: str, node: str, amounts: Amounts) -> None:
        """Count a pod on a node, bound or assumed; once, however often it is told."""
        if self._pods.get(uid) == (node, amounts):
            return
        self.remove(uid)
        self._pods[uid] = (node, amounts)
        self._add(node, amounts, 1)

    def remove(self, uid: str) -> bool:
        """Stop counting a pod; return whether it was counted."""
        found = self._pods.pop(uid, None)
        if found is None:
            return False
        self._add(*found, -1)
        return True

    def fitting(self, amounts: Amounts) -> tuple[list[str], dict[str, int]]:
        """Return the nodes with room, and how many refuse for each reason."""
        fit, reasons = [], dict[str, int]()
        for name, node in self._nodes.items():
            short = [key for key, asked in amounts.items() if not _has_room(node, key, asked)]
            if not short:
                fit.append(name)
            for key in short:
                reason = "Too many pods" if key == _PODS else f"Insufficient {key}"
                reasons[reason] = reasons.get(reason, 0) + 1
        return fit, reasons

    def fullest(self, names: Iterable[str]) -> list[str]:
        """Return those of the nodes whose CPU is used most (the in-tree scorer MostAllocated)."""
        shares = {name: self._cpu_share(name) for name in names}
        most = max(shares.values(), default=0.0)
        return [name for name, share in shares.items() if share == most]

    def _cpu_share(self, name: str) -> float:
        node = self._nodes[name]
        return round(node.used.get("cpu", 0) / (node.allocatable.get("cpu", 0) or 1), 2)

    def _add(self, name: str, amounts: Amounts, sign: int) -> None:
        node = self._nodes.get(name)
        for key, amount in amounts.items() if node is not None else ():
            node.used[key] = node.used.get(key, 0) + sign * amount  # type: ignore[union-attr]


def _has_room(node: _Node, key: str, asked: int) -> bool:
    return key in IGNORED or asked == 0 or asked + node.used.get(key, 0) <= node.allocatable.get(key, 0)


def _collect(
    parts: dict[str, list[tuple[ContainerKind, int]]], kind: ContainerKind, requests: Mapping[str, str] | None
) -> None:
    for key, text in (requests or {}).items():
        parts.setdefault(key, []).append((kind, _milli(text, key)))


def _milli(text: str, name: str) -> int:
    return math.ceil(parse_quantity(text, name) * 1000)


def _sum(taken: Iterable[Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for amounts in taken:
        for key, amount in amounts.items():
            total[key] = total.get(key, 0) + amount
    return total
