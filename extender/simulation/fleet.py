"""The simulated fleet: nodes of mixed GPU generations, as Kubernetes lists them and as their agents see them.

One table is behind both. CPU and host memory of a node are those of a node of the trace with as many cards, so that
hosts are as tight as in production. Descriptions are plain data in the form that simulated agents read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from extender.simulation.trace import TraceNode

Json = Mapping[str, object]

MAX_PODS = 110
"""Pods of one node, kubelet's own default."""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """``count`` equal nodes named ``name-1`` and so on; ``host`` is (model, cards) of the trace node with its host."""

    name: str
    count: int
    devices: tuple[Json, ...]
    host: tuple[str, int]
    faults: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True)
class SimulatedHost:
    """One node: what its Kubernetes object says, and what its agent is to describe."""

    name: str
    cpu_milli: int
    memory_mib: int
    description: Json


_MIG_LAYOUT = ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"]
_BUSY = {"sine": {"mean": 0.35, "amplitude": 0.3, "period_s": 40}}

GROUPS: tuple[NodeGroup, ...] = (
    NodeGroup(
        "k80", 2, ({"product": "K80", "count": 4},), ("P100", 2), ({"kind": "xid", "device": 3, "xid": 79, "at_s": 6},)
    ),
    NodeGroup("p100", 3, ({"product": "P100", "count": 2},), ("P100", 2)),
    NodeGroup("v100", 2, ({"product": "V100", "count": 8},), ("V100M32", 8)),
    NodeGroup("t4", 4, ({"product": "T4", "count": 4},), ("T4", 4)),
    NodeGroup(
        "a100", 2, ({"product": "A100", "count": 5}, {"product": "A100", "count": 3, "mig": _MIG_LAYOUT}), ("G2", 8)
    ),
    NodeGroup(
        "l4",
        2,
        ({"product": "L4", "count": 3}, {"product": "L4", "foreign": [{"memory_mib": 9000}], "utilisation": _BUSY}),
        ("T4", 4),
    ),
    NodeGroup("l40s", 1, ({"product": "L40S", "count": 8},), ("G2", 8)),
    NodeGroup("h100", 1, ({"product": "H100", "count": 8},), ("G3", 8)),
    NodeGroup("h200", 1, ({"product": "H200", "count": 8},), ("G3", 8)),
    NodeGroup("b200", 1, ({"product": "B200", "count": 8},), ("G3", 8)),
    NodeGroup(
        "mixed",
        1,
        tuple({"product": product} for product in ("T4", "V100-16GB", "A10", "L4", "A100-40GB", "H100")),
        ("G2", 8),
    ),
)
"""Eleven kinds of node, oldest generation first. One device of each K80 node fails soon after the start, and one of
each L4 node is partly held by a process that belongs to no pod."""


def simulated_hosts(trace: Sequence[TraceNode], groups: Iterable[NodeGroup] = GROUPS) -> tuple[SimulatedHost, ...]:
    """Return the nodes of all groups in order; raise ValueError for a host that the trace does not have."""
    hosts: dict[tuple[str, int], TraceNode] = {}
    for node in trace:
        known = hosts.setdefault((node.model, node.gpus), node)
        if node.cpu_milli > known.cpu_milli:
            hosts[node.model, node.gpus] = node
    made = []
    for group in groups:
        host = hosts.get(group.host)
        if host is None:
            raise ValueError(f"host of group {group.name}: found {group.host}, valid: {sorted(hosts)}")
        made += [_host(group, number, host) for number in range(1, group.count + 1)]
    return tuple(made)


def node_object(host: SimulatedHost) -> dict[str, object]:
    """Return the node as kubelet would register it; GPU totals are the extender's to add."""
    amounts = {"cpu": f"{host.cpu_milli}m", "memory": f"{host.memory_mib}Mi", "pods": str(MAX_PODS)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": host.name, "labels": {"kubernetes.io/hostname": host.name, "tangram.dev/node": "true"}},
        "spec": {},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def _host(group: NodeGroup, number: int, host: TraceNode) -> SimulatedHost:
    name = f"{group.name}-{number}"
    description = {"node": name, "devices": list(group.devices), "faults": list(group.faults)}
    return SimulatedHost(name, host.cpu_milli, host.memory_mib, description)
