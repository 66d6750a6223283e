"""How the store's records become the fleet's columns, and what is derived from them.

The base of ``ClusterStore``, apart from its verbs: nothing here decides anything. Every write goes from a record or the
ledger to the columns, never the other way, so that columns can always be made again.
"""

from __future__ import annotations

import numpy as np

from extender.errors import InvalidReport
from extender.hardware import DeviceFacts, Standing, devices_of, merged
from extender.holdings import Holding
from extender.noderecord import NodeFacts, NodeRecord
from extender.records import Records
from extender.replicas import Replicas, replicas_of
from extender.totals import COMPUTE, DEVICES
from node_agent.report import Answer, Report
from scoring.fleet import MOST_BOOKED, NO_RESOURCE

_KINDS_LIMIT = 512
_KINDS_REMEMBERED = 128
"""Kinds beyond which those that no device has any more are forgotten: drivers are upgraded, GPUs replaced."""
_RESOURCES_LIMIT = 256
_NOT_OFFERED = Replicas("", 0, 0)
_COUNTED = ("pod", "node", "allocation", "booked", "cpu_milli", "host_memory_mib", "problem", "plugin")
"""Fields of a holding that columns, totals or an agent's bookings depend on."""


class Bookkeeping(Records):
    """Keeps records, ledger and columns in line with each other."""

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
            if _takes_the_same(before, holding):
                return
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
        if not (holding.booked or holding.plugin or holding.problem or holding.allocation):
            return  # Most pods hold CPU and memory only.
        if holding.plugin:
            self._write_replicas(record)
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
        if record.report is not None and any(record.is_plugins(booking.uuid) for booking in holding.booked):
            self._judge_devices(record, record.report, record.arrived_at or 0.0)
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
            "booked_mib": min(given.memory_mib, MOST_BOOKED),
            "booked_milli": min(given.compute_milli, MOST_BOOKED),
            "sharers": len(given.uids),
        }

    def _check_kinds(self, report: Report) -> None:
        """Raise InvalidReport where a report would bring in more kinds or resources than a fleet may have."""
        reported = {facts.kind for facts in devices_of(report).values()}
        kinds = self._kinds | reported
        if len(kinds) > max(len(self._kinds), _KINDS_REMEMBERED):
            kinds = self._draft.forget_kinds() | reported
        resources = self._resources | {each.resource for each in report.plugin}
        if len(kinds) > _KINDS_LIMIT:
            raise InvalidReport("$.devices", "kinds of device never seen before", f"at most {_KINDS_LIMIT} in a fleet")
        if len(resources) > _RESOURCES_LIMIT:
            raise InvalidReport("$.plugin", "resources never seen before", f"at most {_RESOURCES_LIMIT} in a fleet")
        self._kinds, self._resources = kinds, resources

    def _judge_devices(self, record: NodeRecord, report: Report, now: float) -> None:
        """Work out what a report means for each device, and write what has changed."""
        booked = self.ledger.devices(record.name)
        cordoned = record.facts.cordoned if record.facts is not None else frozenset()
        reported = devices_of(report, Standing(cordoned, booked))
        devices = merged(record.devices, reported, booked, report.state)
        if devices != record.devices or tuple(devices) != tuple(record.devices):
            record.devices = devices
            self._changed_health.add(record.name)
            self._write_devices(record, now)
        self._write_replicas(record)

    def _write_replicas(self, record: NodeRecord) -> None:
        """Write what NVIDIA's device plugin offers and has given out."""
        report = record.report
        if report is None or not (report.plugin or record.replicas):
            return
        replicas = replicas_of(report, record.devices, self.ledger.plugin(record.name))
        if replicas != record.replicas:
            record.replicas = replicas
            for slot, uuid in enumerate(record.devices):
                self._draft.set_device(record.row, slot, **self._replicas(record, uuid))

    def _replicas(self, record: NodeRecord, uuid: str) -> dict[str, float]:
        held = record.replicas.get(uuid, _NOT_OFFERED)
        number = self._draft.resource_index(held.resource) if held.resource else NO_RESOURCE
        return {"resource": number, "replicas": held.offered, "replicas_taken": held.taken}

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
            **self._replicas(record, facts.uuid),
        }

    def _write_load(self, record: NodeRecord, now: float) -> None:
        """Write measured load, and the compute that has not settled yet."""
        self._write_measured_load(record)
        settling = record.settling_milli(now)
        placed = [settling.get(uuid, 0) for uuid in record.devices]
        self._draft.set_load(record.row, "settling_milli", np.array(placed, np.int32))

    def _write_measured_load(self, record: NodeRecord) -> None:
        averages = record.load
        load = [averages[uuid].value if uuid in averages else np.nan for uuid in record.devices]
        self._draft.set_load(record.row, "load", np.array(load, np.float32))

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
            cordoned=tuple(sorted(record.facts.cordoned)) if record.facts is not None else (),
        )


def _takes_the_same(one: Holding, other: Holding) -> bool:
    """Return whether two holdings of a pod come to the same in the columns and for the agent."""
    return all(getattr(one, name) == getattr(other, name) for name in _COUNTED)


def _carries_devices(facts: NodeFacts | None) -> bool:
    if facts is None:
        return False
    return facts.has_plugin or any(name in (DEVICES, COMPUTE) and amount > 0 for name, amount in facts.totals)


def _differs(facts: NodeFacts, totals: dict[str, int] | None) -> bool:
    return totals is not None and dict(facts.totals) != {name: amount for name, amount in totals.items() if amount}
