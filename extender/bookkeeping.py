"""How the store's records become the fleet's columns, and what is derived from them.

The base of ``ClusterStore``, apart from its verbs: nothing here decides anything. Every write goes from a record or the
ledger to the columns, never the other way, so that columns can always be made again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from extender.hardware import DeviceFacts
from extender.holdings import Holding, PodIdentity
from extender.intake import InvalidReport
from extender.ledger import Ledger
from extender.noderecord import NodeFacts, NodeRecord
from extender.nominees import Nominees, Shares
from extender.settings import Settings
from extender.totals import COMPUTE, DEVICES, advertised_totals
from node_agent.report import Answer, Booking
from scoring.catalog import DeviceKind
from scoring.draft import FleetDraft
from scoring.fleet import Fleet, ModeCode
from scoring.registry import build_policies

_KINDS_LIMIT = 4096


class Bookkeeping:
    """Records, ledger and columns, kept in line with each other."""

    def __init__(self, settings: Settings, first_generation: int) -> None:
        self.ledger = Ledger(settings.tombstones_kept)
        self.nominees = Nominees(build_policies(settings.policies)[settings.policy])
        self.on_growth: Callable[[str, bool], None] = lambda _node, _by_pod_end: None
        self._settings = settings
        self._draft = FleetDraft()
        self._nodes: dict[str, NodeRecord] = {}
        self._unreported: set[str] = set()
        self._changed_totals: set[str] = set()
        self._first_generation = first_generation
        self._nodes_are_listed = False
        self._kinds: set[DeviceKind] = set()

    # Reading: nothing below up to the next heading changes state.

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

    # Writing, for the verbs.

    def note_growth(self, node: str, *, by_pod_end: bool = False) -> None:
        """Tell who wakes waiting pods that a node may take more than before."""
        self.on_growth(node, by_pod_end)

    def _add(self, name: str) -> NodeRecord:
        record = NodeRecord(name, self._draft.add_node(name), bookings_generation=self._first_generation)
        self._nodes[name] = record
        self._write_amounts(record)
        self._write_state(record)
        return record

    def _enter(self, holding: Holding) -> None:
        if self.ledger.get(holding.pod.uid) == holding:
            return
        before = self.ledger.put(holding)
        if before is not None:
            self._books_changed(before)
        self._books_changed(holding)

    def _books_changed(self, holding: Holding) -> None:
        """Write the columns of the node and the devices that a holding is on."""
        record = self._nodes.get(holding.node)
        if record is None:
            return
        if holding.allocation is not None:
            record.bookings_generation += 1
        self._write_amounts(record)
        slots = {uuid: slot for slot, uuid in enumerate(record.devices)}
        vanished = False
        for booking in holding.booked:
            if booking.uuid in slots:
                self._draft.set_device(record.row, slots[booking.uuid], **self._books(record.name, booking.uuid))
                vanished |= self._has_vanished(record, booking.uuid)
            else:
                self._changed_totals.add(record.name)
        if vanished:
            self._drop_vanished(record)
        self._write_state(record)
        self._check_totals(record)

    def _has_vanished(self, record: NodeRecord, uuid: str) -> bool:
        """Return whether a device stays only because somebody held a share of it, and nobody does any more."""
        report = record.report
        reported = report is not None and any(device.uuid == uuid for device in report.devices)
        return not reported and not self.ledger.device(record.name, uuid).uids

    def _drop_vanished(self, record: NodeRecord) -> None:
        record.devices = {uuid: facts for uuid, facts in record.devices.items() if not self._has_vanished(record, uuid)}
        assert record.arrived_at is not None
        self._write_devices(record, record.arrived_at)
        self._write_load(record, record.arrived_at)

    def _books(self, node: str, uuid: str) -> dict[str, float]:
        given = self.ledger.device(node, uuid)
        return {
            "booked_mib": given.memory_mib,
            "booked_milli": given.compute_milli,
            "sharers": len(given.uids),
        }

    def _check_kinds(self, devices: Mapping[str, DeviceFacts]) -> None:
        """Raise InvalidReport where devices would bring in more kinds than a column can number."""
        kinds = {facts.kind for facts in devices.values()}
        if len(self._kinds | kinds) > _KINDS_LIMIT:
            raise InvalidReport("$.devices", "kinds of device never seen before", f"at most {_KINDS_LIMIT} in a fleet")
        self._kinds |= kinds

    def _write_devices(self, record: NodeRecord, now: float) -> None:
        """Write every device column of a node."""
        settling = record.settling_milli(now)
        rows = [self._device_row(record, facts, settling) for facts in record.devices.values()]
        columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
        self._draft.set_devices(record.row, tuple(record.devices), columns)
        self._changed_totals.add(record.name)

    def _device_row(self, record: NodeRecord, facts: DeviceFacts, settling: dict[str, int]) -> dict[str, float]:
        load = record.load.get(facts.uuid)
        return {
            "kind": self._draft.kind_index(facts.kind),
            "device_state": facts.state,
            "mode": facts.mode,
            "capacity_mib": facts.capacity_mib,
            "capacity_milli": facts.capacity_milli,
            "foreign_mib": facts.foreign_mib,
            "load": load.value if load is not None else np.nan,
            "settling_milli": settling.get(facts.uuid, 0),
            "numa": facts.numa,
            "link": facts.link,
            **self._books(record.name, facts.uuid),
        }

    def _write_load(self, record: NodeRecord, now: float) -> None:
        settling = record.settling_milli(now)
        load = [record.load[uuid].value if uuid in record.load else np.nan for uuid in record.devices]
        placed = [settling.get(uuid, 0) for uuid in record.devices]
        self._draft.set_load(record.row, np.array(load, np.float32), np.array(placed, np.int32))

    def _write_amounts(self, record: NodeRecord) -> None:
        cpu_milli, host_mib = self.ledger.node_amounts(record.name)
        self._draft.set_node(record.row, cpu_booked_milli=cpu_milli, host_booked_mib=host_mib)

    def _write_state(self, record: NodeRecord) -> None:
        has_problems = bool(self.ledger.problems(record.name))
        known = _carries_devices(record.facts) or bool(self.ledger.devices(record.name))
        state = record.state(has_problems=has_problems, is_known_to_have_devices=known)
        self._draft.set_node(record.row, node_state=state)
        if record.report is None and record.facts is not None and known:
            self._unreported.add(record.name)
        else:
            self._unreported.discard(record.name)

    def _check_totals(self, record: NodeRecord) -> None:
        """Have the node's totals written if they are not what it carries."""
        if record.facts is not None and _differs(record.facts, self.totals(record.name)):
            self._changed_totals.add(record.name)

    def _answer(self, record: NodeRecord, known_generation: int | None) -> Answer:
        changed = known_generation != record.bookings_generation
        return Answer(
            bookings_generation=record.bookings_generation,
            bookings=self.bookings(record.name) if changed else None,
            heartbeat_s=self._settings.heartbeat_s,
        )

    @staticmethod
    def _foreign(record: NodeRecord) -> int:
        return sum(facts.foreign_mib for facts in record.devices.values() if facts.mode is not ModeCode.PLUGIN)


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


def _carries_devices(facts: NodeFacts | None) -> bool:
    return facts is not None and any(name in (DEVICES, COMPUTE) and amount > 0 for name, amount in facts.totals)


def _differs(facts: NodeFacts, totals: dict[str, int] | None) -> bool:
    return totals is not None and dict(facts.totals) != {name: amount for name, amount in totals.items() if amount}
