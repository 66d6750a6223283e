"""The only mutable state of the cluster: nodes, devices, and who holds what. One writer, one event loop, no lock.

Only the verbs below change anything. They are plain functions without ``await``, run on the thread that made the store
(asserted), and are idempotent: once or twice is the same. Readers get an immutable snapshot. Time is an argument.

An allocation's life, keyed by pod UID::

            assume                    confirm, or the watch shows the pod bound
    absent ---------> assumed ------------------------------------------------> confirmed
      ^                  |                                                          |
      |<-- forget -------+   (a definite refusal; only with the token of its own    |
      |                       assume; an unknown outcome waits for a read)          |
      |<-- release ------+----------------------------------------------------------+
                             (the pod is gone, or ran to its end)

    absent -> confirmed      the watch shows a bound pod that we did not assume: a restart, or somebody else's binding

A pod that was bound by somebody else and asks for our devices without an allocation holds nobody knows what: its node
is conflicted and takes nothing more until the pod is gone. The truth behind allocations is the pods' annotations, the
truth behind hardware the agents' reports; neither is corrected by the other.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace

from extender.bookkeeping import Bookkeeping
from extender.errors import PodReplaced, UnknownNode
from extender.hardware import averaged
from extender.holdings import (
    DeviceBooking,
    Holding,
    ObservedPod,
    Phase,
    Placing,
    Reservation,
    Token,
    assumption_of,
    held_again,
    holding_of,
)
from extender.noderecord import NodeFacts, NodeRecord, Settling
from extender.nominees import Nominee
from extender.replicas import expected_load
from extender.settings import Settings
from extender.steady import SteadyPart, steady_part
from node_agent.report import Answer, Report
from scoring.pipeline import PlacedPod, allocation_on
from scoring.status import Code, Reason, Verdict


class ClusterStore(Bookkeeping):
    """Nodes, devices and holdings. ``first_generation`` starts the generations of bookings that agents compare."""

    def __init__(self, settings: Settings, first_generation: int = 0) -> None:
        super().__init__(settings, first_generation)
        self._thread = threading.get_ident()
        self._arrivals: OrderedDict[str, float] = OrderedDict()
        self._settling: OrderedDict[str, None] = OrderedDict()
        self._tokens: dict[Token, str] = {}
        self._last_token = 0

    # Hardware: what agents say.

    def repeats(self, report: Report) -> bool:
        """Return whether a report says no more of hardware and health than the last one of its node."""
        record = self._nodes.get(report.node)
        return record is not None and record.is_fresh and record.steady == self._steady_part(report)

    def apply_report(self, report: Report, now: float, *, repeats: bool = False) -> Answer | None:
        """Take a report in and return the answer to it; None if a later one was there before.

        ``repeats`` says that the method of that name has just said so.
        Raises UnknownNode for a node that the API server does not list (before the list is in, it waits for it), and
        InvalidReport where it would bring in more kinds of device than a fleet can have.
        """
        self._on_loop()
        record = self._nodes.get(report.node) or self._meet(report.node)
        if record.is_old(report):
            return None
        if repeats or self.repeats(report):
            self._hear(record, report, now)
        else:
            self._take_hardware(record, report, now)
        if record.settling:
            self._write_load(record, now)
        else:
            self._write_measured_load(record)
        return self._answer(record, report.bookings_generation)

    def expire(self, now: float) -> tuple[str, ...]:
        """Mark the nodes stale whose last report is too old, and let fresh placements settle; return the stale ones.

        Looks at what expired and no further: arrivals are kept in order.
        """
        self._on_loop()
        stale = []
        while self._arrivals:
            name, arrived = next(iter(self._arrivals.items()))
            if now - arrived <= self._settings.stale_after_s:
                break
            del self._arrivals[name]
            record = self._nodes[name]
            record.is_fresh, record.load = False, {}
            self._write_state(record)
            self._write_load(record, now)
            stale.append(name)
        for name in tuple(self._settling):
            record = self._nodes[name]
            self._write_load(record, now)
            if not record.settling:
                del self._settling[name]
        return tuple(stale)

    # Nodes: what the API server lists.

    def set_node(self, facts: NodeFacts) -> None:
        """Take in what the API server says of a node."""
        self._on_loop()
        record = self._nodes.get(facts.name)
        if record is None:
            record = self._add(facts.name)
        if record.facts == facts:
            return
        before, record.facts = record.room(), facts
        self._draft.set_node(record.row, cpu_capacity_milli=facts.cpu_milli, host_capacity_mib=facts.host_memory_mib)
        if record.report is not None:
            self._judge_devices(record, record.report, record.arrived_at or 0.0)
        self._write_state(record)
        self._check_totals(record)
        if record.room().has_grown_since(before):
            self.note_growth(facts.name)

    def remove_node(self, name: str) -> None:
        """Forget a node and its hardware. What its pods hold stays in the books until they are gone."""
        self._on_loop()
        if self._nodes.pop(name, None) is None:
            return
        self._arrivals.pop(name, None)
        self._settling.pop(name, None)
        self._unreported.discard(name)
        self._changed_health.add(name)
        self._draft.remove_node(name)

    def nodes_listed(self) -> None:
        """Note that the list of nodes is complete: forget those of which only an agent spoke."""
        self._on_loop()
        self._nodes_are_listed = True
        for name in [name for name, record in self._nodes.items() if record.facts is None]:
            self.remove_node(name)

    # Holdings: what binds and the watch say.

    def assume(self, placing: Placing, now: float) -> Reservation | Verdict:
        """Reserve the best placement on the current state; the verdict where the pod does not fit.

        A pod that is assumed on this node already gets the same reservation again. Raises BoundElsewhere where it holds
        something on another node, PodReplaced where it is gone.
        """
        self._on_loop()
        pod = placing.pod
        if self.ledger.is_gone(pod.uid):
            raise PodReplaced(f"pod {pod.namespace}/{pod.name} with UID {pod.uid} is gone")
        held = self.ledger.get(pod.uid)
        if held is not None:
            return held_again(held, placing)
        record = self._nodes.get(placing.node)
        if record is None:
            return Verdict(Code.UNSCHEDULABLE, Reason.UNKNOWN_NODE)
        fleet = self.snapshot_for(pod)
        placed = allocation_on(placing.request, fleet, record.row, placing.policy, placing.outlook)
        if isinstance(placed, Verdict):
            return placed
        return self._reserve(placing, record, placed, now)

    def confirm(self, token: Token) -> None:
        """Turn the assumption of this token into a confirmed holding. An unknown token changes nothing."""
        self._on_loop()
        holding = self._assumed_by(token)
        if holding is not None:
            del self._tokens[token]
            self._enter(replace(holding, phase=Phase.CONFIRMED, token=None, outcome_unknown=False))

    def forget(self, token: Token) -> None:
        """Undo the assumption of this token and nothing else. An unknown token changes nothing."""
        self._on_loop()
        holding = self._assumed_by(token)
        if holding is not None:
            self._remove(holding.pod.uid)
            self.note_growth(holding.node)

    def doubt(self, token: Token) -> None:
        """Note that the Binding of this token was sent and may have landed: only a read may settle it."""
        self._on_loop()
        holding = self._assumed_by(token)
        if holding is not None and not holding.outcome_unknown:
            self._enter(replace(holding, outcome_unknown=True))

    def set_pod(self, seen: ObservedPod) -> None:
        """Bring the books in line with what a watch or a read says of a pod."""
        self._on_loop()
        uid = seen.pod.uid
        if self.ledger.is_gone(uid):
            return
        if seen.is_over:
            self.release(uid)
            return
        if not seen.node:
            self._nominate(seen)
            return
        self.nominees.withdraw(uid)
        held = self.ledger.get(uid)
        self._enter(holding_of(seen, held.since if held is not None else None))
        if held is not None and held.token is not None:
            self._tokens.pop(held.token, None)

    def release(self, uid: str) -> None:
        """Free all that a pod holds: it is gone, or ran to its end. Its UID never counts again."""
        self._on_loop()
        held = self.ledger.get(uid)
        self.nominees.withdraw(uid)
        self._remove(uid, for_good=True)
        if held is not None and (held.booked or held.plugin):
            self.note_growth(held.node, by_pod_end=True)

    def is_open(self, token: Token) -> bool:
        """Return whether the assumption of this token waits to be settled."""
        return self._assumed_by(token) is not None

    def is_in_doubt(self, token: Token) -> bool:
        """Return whether a Binding on this token was sent whose outcome nobody knows."""
        holding = self._assumed_by(token)
        return holding is not None and holding.outcome_unknown

    # Inside.

    def _steady_part(self, report: Report) -> SteadyPart:
        return steady_part(report, self.ledger.devices(report.node))

    def _take_hardware(self, record: NodeRecord, report: Report, now: float) -> None:
        before = record.room()
        self._check_kinds(report)
        self._hear(record, report, now)
        self._judge_devices(record, report, now)
        # A device that vanished and is kept may go with the next report, so that one is taken in the same long way.
        is_all = record.devices.keys() <= {device.uuid for device in report.devices}
        record.steady = self._steady_part(report) if is_all else None
        self._write_state(record)
        if record.room().has_grown_since(before):
            self.note_growth(report.node)

    def _hear(self, record: NodeRecord, report: Report, now: float) -> None:
        record.take(report, now)
        self._arrivals[report.node] = now
        self._arrivals.move_to_end(report.node)
        record.load = averaged(record.load, report, now, self._settings.load_average_s)

    def _on_loop(self) -> None:
        assert threading.get_ident() == self._thread, "the store is written from one thread only"

    def _meet(self, name: str) -> NodeRecord:
        if self._nodes_are_listed or len(self._nodes) >= self._settings.max_nodes:
            raise UnknownNode(f"node {name!r} is not in the cluster")
        return self._add(name)

    def _reserve(self, placing: Placing, record: NodeRecord, placed: PlacedPod, now: float) -> Reservation:
        self._last_token += 1
        token = Token(self._last_token)
        uuids = self._draft.uuids(record.row)
        booked = tuple(DeviceBooking(uuids[slot], mib, milli) for slot, mib, milli in placed.booked)
        self._tokens[token] = placing.pod.uid
        self._settle_later(record, placing, booked, now)
        self._enter(replace(assumption_of(placing, placed.allocation, booked, token), since=now))
        self._write_load(record, now)
        return Reservation(token, placing.node, placed.allocation)

    def _settle_later(self, record: NodeRecord, placing: Placing, booked: Iterable[DeviceBooking], now: float) -> None:
        until, uid = now + self._settings.settle_s, placing.pod.uid
        loads = [(booking.uuid, booking.compute_milli) for booking in booked]
        loads += expected_load(record.replicas, placing.request.plugin)
        record.settling += [Settling(until, uid, uuid, milli) for uuid, milli in loads]
        self._settling[record.name] = None

    def _nominate(self, seen: ObservedPod) -> None:
        if seen.nominated and seen.request is not None and seen.request.containers:
            self.nominees.nominate(Nominee(seen.pod, seen.nominated, seen.request))
        else:
            self.nominees.withdraw(seen.pod.uid)

    def _assumed_by(self, token: Token) -> Holding | None:
        uid = self._tokens.get(token)
        holding = self.ledger.get(uid) if uid is not None else None
        return holding if holding is not None and holding.token == token else None

    def _remove(self, uid: str, *, for_good: bool = False) -> None:
        held = self.ledger.bury(uid) if for_good else self.ledger.drop(uid)
        if held is None:
            return
        if held.token is not None:
            self._tokens.pop(held.token, None)
        record = self._nodes.get(held.node)
        if record is not None and record.settling:
            record.settling = [entry for entry in record.settling if entry.uid != uid]
            self._write_load(record, record.arrived_at or 0.0)
        self._books_changed(held)
