"""The books: which pod holds what of which device, keyed by pod UID.

Knows nothing of hardware: a share on a device that no agent has reported is kept like any other. Sums are kept beside
the entries, so that every question is answered without a walk. UIDs that were dropped for good are remembered, within a
bound, because a read that was under way while its pod was deleted must not bring the pod back.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from extender.bounded import keep
from extender.holdings import DeviceBooking, Holding, Phase


@dataclass(slots=True)
class DeviceSum:
    """What one device has given away: MiB, thousandths, and to whom."""

    memory_mib: int = 0
    compute_milli: int = 0
    uids: set[str] = field(default_factory=set)


@dataclass(slots=True)
class NodeSum:
    """What one node has given away, and every pod that holds some of it."""

    cpu_milli: int = 0
    host_memory_mib: int = 0
    uids: set[str] = field(default_factory=set)
    devices: dict[str, DeviceSum] = field(default_factory=dict)
    problems: set[str] = field(default_factory=set)
    plugin: Counter[str] = field(default_factory=Counter)


_NOTHING = DeviceSum()


class Ledger:
    """Holdings by UID, with their sums by node and device."""

    def __init__(self, tombstones: int) -> None:
        self._holdings: dict[str, Holding] = {}
        self._nodes: dict[str, NodeSum] = {}
        self._assumed: set[str] = set()
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._tombstones = tombstones

    def __len__(self) -> int:
        return len(self._holdings)

    def get(self, uid: str) -> Holding | None:
        """Return what a pod holds."""
        return self._holdings.get(uid)

    def all(self) -> tuple[Holding, ...]:
        """Return every holding."""
        return tuple(self._holdings.values())

    def is_gone(self, uid: str) -> bool:
        """Return whether a pod is known to have gone for good; UIDs never come back."""
        return uid in self._gone

    def assumed(self) -> tuple[Holding, ...]:
        """Return the holdings that no read has confirmed yet."""
        return tuple(self._holdings[uid] for uid in self._assumed)

    def put(self, holding: Holding) -> Holding | None:
        """Enter a holding in place of what the pod held before, which is returned."""
        before = self.drop(holding.pod.uid)
        self._holdings[holding.pod.uid] = holding
        if holding.phase is Phase.ASSUMED:
            self._assumed.add(holding.pod.uid)
        node = self._nodes.setdefault(holding.node, NodeSum())
        node.uids.add(holding.pod.uid)
        node.cpu_milli += holding.cpu_milli
        node.host_memory_mib += holding.host_memory_mib
        if holding.problem:
            node.problems.add(holding.pod.uid)
        for ask in holding.plugin:
            node.plugin[ask.resource] += ask.count
        for booking in holding.booked:
            device = node.devices.setdefault(booking.uuid, DeviceSum())
            device.memory_mib += booking.memory_mib
            device.compute_milli += booking.compute_milli
            device.uids.add(holding.pod.uid)
        return before

    def drop(self, uid: str) -> Holding | None:
        """Take a pod's holding out and return it."""
        holding = self._holdings.pop(uid, None)
        if holding is None:
            return None
        self._assumed.discard(uid)
        node = self._nodes[holding.node]
        node.uids.discard(uid)
        node.problems.discard(uid)
        node.cpu_milli -= holding.cpu_milli
        node.host_memory_mib -= holding.host_memory_mib
        for ask in holding.plugin:
            node.plugin[ask.resource] -= ask.count
            if not node.plugin[ask.resource]:
                del node.plugin[ask.resource]
        for booking in holding.booked:
            self._give_back(node, uid, booking)
        if not node.uids:
            del self._nodes[holding.node]
        return holding

    def bury(self, uid: str) -> Holding | None:
        """Take a pod's holding out for good: nothing that is read later brings it back."""
        keep(self._gone, uid, None, self._tombstones)
        return self.drop(uid)

    def device(self, node: str, uuid: str) -> DeviceSum:
        """Return what a device has given away; not to be changed by the caller."""
        found = self._nodes.get(node)
        return _NOTHING if found is None else found.devices.get(uuid, _NOTHING)

    def devices(self, node: str) -> tuple[str, ...]:
        """Return the UUIDs of a node's devices of which somebody holds a share."""
        found = self._nodes.get(node)
        return () if found is None else tuple(found.devices)

    def node_amounts(self, node: str) -> tuple[int, int]:
        """Return the CPU (1/1000 core) and host memory (MiB) that pods take of a node."""
        found = self._nodes.get(node)
        return (0, 0) if found is None else (found.cpu_milli, found.host_memory_mib)

    def plugin(self, node: str) -> Mapping[str, int]:
        """Return how many replicas of NVIDIA's device plugin the pods on a node ask, by resource."""
        found = self._nodes.get(node)
        return {} if found is None else found.plugin

    def on_node(self, node: str) -> Iterator[Holding]:
        """Yield every holding on a node, in order of UID."""
        found = self._nodes.get(node)
        for uid in sorted(found.uids) if found is not None else ():
            yield self._holdings[uid]

    def problems(self, node: str) -> tuple[str, ...]:
        """Return why the books of a node cannot be right, in words, one sentence a pod."""
        found = self._nodes.get(node)
        if found is None:
            return ()
        holdings = (self._holdings[uid] for uid in sorted(found.problems))
        return tuple(f"pod {entry.pod.namespace}/{entry.pod.name}: {entry.problem}" for entry in holdings)

    @staticmethod
    def _give_back(node: NodeSum, uid: str, booking: DeviceBooking) -> None:
        device = node.devices[booking.uuid]
        device.memory_mib -= booking.memory_mib
        device.compute_milli -= booking.compute_milli
        device.uids.discard(uid)
        if not device.uids:
            del node.devices[booking.uuid]
