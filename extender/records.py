"""What the store knows, to be read: records of nodes, the ledger, and the fleet that is made of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from extender.holdings import Holding, PodIdentity
from extender.ledger import Ledger
from extender.noderecord import NodeRecord
from extender.nominees import Nominees, Shares
from extender.settings import Settings
from extender.totals import advertised_totals
from node_agent.report import Booking
from scoring.catalog import DeviceKind
from scoring.draft import FleetDraft
from scoring.fleet import Fleet
from scoring.registry import build_policies


class Records:
    """Records, ledger and columns. Only ``take_changed_...`` change anything: they forget what they told."""

    def __init__(self, settings: Settings, first_generation: int) -> None:
        self.ledger = Ledger(settings.tombstones_kept)
        self.nominees = Nominees(build_policies(settings.policies)[settings.policy])
        self.on_growth: Callable[[str, bool], None] = lambda _node, _by_pod_end: None
        self._settings = settings
        self._draft = FleetDraft()
        self._nodes: dict[str, NodeRecord] = {}
        self._unreported: set[str] = set()
        self._changed_totals: set[str] = set()
        self._changed_health: set[str] = set()
        self._first_generation = first_generation
        self._nodes_are_listed = False
        self._kinds: set[DeviceKind] = set()
        self._resources: set[str] = set()

    @property
    def generation(self) -> int:
        """Return the number that grows with every change that a decision could notice."""
        return self._draft.generation

    @property
    def unreported(self) -> frozenset[str]:
        """Return the nodes known to have devices whose agent has not been heard yet."""
        return frozenset(self._unreported)

    def nodes(self) -> tuple[NodeRecord, ...]:
        """Return every node's record; not to be changed by the caller."""
        return tuple(self._nodes.values())

    def node(self, name: str) -> NodeRecord | None:
        """Return one node's record; not to be changed by the caller."""
        return self._nodes.get(name)

    def snapshot(self) -> Fleet:
        """Return all nodes and devices as they are now; costs nothing while nothing changes."""
        return self._draft.freeze()

    def kept_from(self, pod: PodIdentity) -> Shares:
        """Return what nominated pods keep from this one, by (row, slot)."""
        return self.nominees.kept_from(pod, self._draft.freeze(), self.ledger.on_node) if len(self.nominees) else {}

    def snapshot_for(self, pod: PodIdentity) -> Fleet:
        """Return the fleet as this pod may use it: what nominated pods keep from it counts as taken."""
        kept = self.kept_from(pod)
        fleet = self._draft.freeze()
        return fleet.with_shares(kept) if kept else fleet

    def bookings(self, name: str) -> tuple[Booking, ...]:
        """Return every share on a node, as its agent hears of it."""
        return tuple(booking for holding in self.ledger.on_node(name) for booking in _shares(holding))

    def totals(self, name: str) -> dict[str, int] | None:
        """Return what the node should advertise, by resource without prefix; None while nothing is known of it."""
        record = self._nodes.get(name)
        if record is None or record.report is None or record.facts is None:
            return None
        books = {uuid: self.ledger.device(name, uuid) for uuid in self.ledger.devices(name)}
        return advertised_totals(record.devices.values(), books)

    def overbooked(self) -> dict[tuple[str, str], tuple[PodIdentity, ...]]:
        """Return the devices that have given away more than they have, with the pods on each."""
        fleet = self._draft.freeze()
        over = (fleet.booked_mib > fleet.capacity_mib) | (fleet.booked_milli > fleet.capacity_milli)
        found = {}
        for slot, row in zip(*np.nonzero(over), strict=True):
            node, uuid = fleet.names[row], fleet.uuids[row][slot]
            holdings = (self.ledger.get(uid) for uid in sorted(self.ledger.device(node, uuid).uids))
            found[node, uuid] = tuple(holding.pod for holding in holdings if holding is not None)
        return found

    def take_changed_totals(self) -> frozenset[str]:
        """Return the nodes whose totals may have to be written since the last call."""
        changed = frozenset(self._changed_totals)
        self._changed_totals.clear()
        return changed

    def take_changed_health(self) -> frozenset[str]:
        """Return the nodes on which a device may have gone out, come back or gone away since the last call."""
        changed = frozenset(self._changed_health)
        self._changed_health.clear()
        return changed


def _shares(holding: Holding) -> list[Booking]:
    pod = holding.pod
    containers = holding.allocation.containers if holding.allocation is not None else ()
    return [
        Booking(
            pod_uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            container=container,
            uuid=share.uuid,
            memory_mib=share.memory_mib,
            compute_milli=share.compute_milli,
            mode=str(share.mode),
        )
        for container, shares in containers
        for share in shares
    ]
