"""The health of each device: a state machine fed with sweeps, XID events and the operator's cordons.

::

            suspect row                       fatal row
    healthy ------------> suspect ---------------------------+
       ^  ^                  | quiet                         v
       |  +------------------+           cause is gone     +-----+
       |                                +----------------- | out |  <-- fatal row, from any state
       |   quiet                        v                  +-----+
       +------------------------- probation --- any fault ----^

    lost       while the driver cannot reach the device; found again: probation
    cordoned   while the operator says so, over every other state; uncordoned after a fault: probation

"The cause is gone" depends on the row's action: ``rest`` waits for a quiet time; ``reset`` wants evidence of a reset:
the device was lost and came back, its energy counter started anew, the driver withdrew its recovery action or pending
flag, or the operator cordoned and uncordoned it; ``replace`` never. Each relapse during probation doubles the next
probation, up to a limit. Time is an argument, so the machine is pure in (events, times).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from node_agent import health_rules as rules
from node_agent.health_memory import Remembered
from node_agent.health_rules import Action, Rule
from node_agent.readings import Counters, DeviceReading, Readings
from node_agent.report import Health
from node_agent.xid_targets import xid_targets


@dataclass(frozen=True, slots=True)
class HealthTimes:
    """How long each kind of quiet has to last, in seconds."""

    suspect_s: float = 300.0
    rest_s: float = 60.0
    probation_s: float = 120.0
    probation_limit_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the report says of a device: its state, and why in words when it is not healthy."""

    health: Health
    fault: str = ""


_CORDONED = Verdict(Health.CORDONED, "cordoned by the operator")


@dataclass(slots=True)
class _Record:
    """What is remembered of one device between sweeps."""

    state: Health = Health.HEALTHY
    since_s: float = 0.0
    fault: str = ""
    action: Action = Action.COUNT
    probation_s: float = 0.0
    cordoned: bool = False
    counters: Counters = field(default_factory=Counters)
    energy_at_fault_mj: int | None = None
    pending: frozenset[str] = frozenset()
    xid_counts: dict[int, int] = field(default_factory=dict)


class HealthTracker:
    """Keeps the state of every device of one node; one call a sweep, always with the newest readings."""

    def __init__(self, times: HealthTimes | None = None) -> None:
        self._times = times or HealthTimes()
        self._records: dict[str, _Record] = {}
        self._held: frozenset[str] = frozenset()

    def observe(self, readings: Readings, now_s: float, cordoned: Iterable[str] = ()) -> dict[str, Verdict]:
        """Take one sweep in and return a verdict for every device in it, and for devices that vanished.

        ``now_s`` is a monotonic time. A device that was there and is missing from a sweep is lost; it stays in the
        answer until it returns or ``forget`` is called.
        """
        present = {device.uuid: device for device in readings.devices}
        for event in readings.events:
            for uuid in xid_targets(event, present):
                self._take_xid(self._record(uuid, now_s), event.xid, now_s)
        self._held = held = frozenset(cordoned)
        for uuid, device in present.items():
            record = self._record(uuid, now_s)
            self._take_cordon(record, is_cordoned=uuid in held, now_s=now_s)
            self._take_device(record, device, now_s)
        self._take_instances({mig.uuid for device in present.values() for mig in device.mig_devices}, now_s)
        for uuid, record in self._records.items():
            if uuid not in present and not _is_instance(uuid):
                self._lose(record, "no longer listed by the driver", now_s)
        return self.verdicts()

    def verdicts(self) -> dict[str, Verdict]:
        """Return the verdicts as they stand, without a new sweep; of MIG instances only those with one of their own."""
        instances = {uuid: _CORDONED for uuid in self._held if uuid not in self._records}
        return {**instances, **{uuid: self._verdict(record) for uuid, record in self._records.items()}}

    def xid_counts(self) -> dict[str, dict[int, int]]:
        """Return how often each XID was seen, by UUID."""
        return {uuid: dict(record.xid_counts) for uuid, record in self._records.items()}

    def remember(self) -> dict[str, Remembered]:
        """Return what should outlive this process: the devices that time alone would not heal, or not yet."""
        return {
            uuid: Remembered(
                state=record.state,
                fault=record.fault,
                action=record.action,
                probation_s=record.probation_s,
                energy_mj=record.energy_at_fault_mj,
            )
            for uuid, record in self._records.items()
            if record.state in {Health.OUT, Health.LOST, Health.PROBATION}
        }

    def recall(self, remembered: Mapping[str, Remembered], now_s: float) -> None:
        """Go on where an earlier process of this boot ended; waiting times begin anew."""
        for uuid, each in remembered.items():
            record = self._record(uuid, now_s)
            record.state, record.fault, record.action = each.state, each.fault, each.action
            record.probation_s, record.energy_at_fault_mj = each.probation_s, each.energy_mj
            record.counters = Counters(energy_mj=each.energy_mj)

    def forget(self, uuid: str) -> None:
        """Drop a device that the operator took out of the machine."""
        self._records.pop(uuid, None)

    def _record(self, uuid: str, now_s: float) -> _Record:
        return self._records.setdefault(uuid, _Record(since_s=now_s))

    def _take_instances(self, present: set[str], now_s: float) -> None:
        """Let time pass for instances with a fault of their own; one that was taken apart is forgotten."""
        for uuid in [uuid for uuid in self._records if _is_instance(uuid)]:
            if uuid not in present:
                del self._records[uuid]
                continue
            record = self._records[uuid]
            self._take_cordon(record, is_cordoned=uuid in self._held, now_s=now_s)
            self._age(record, now_s, was_reset=False)

    def _take_xid(self, record: _Record, xid: int, now_s: float) -> None:
        record.xid_counts[xid] = record.xid_counts.get(xid, 0) + 1
        rule = rules.xid_rule(xid)
        self._apply(record, rule, f"XID {xid}: {rule.words}", now_s)

    def _take_cordon(self, record: _Record, *, is_cordoned: bool, now_s: float) -> None:
        released = record.cordoned and not is_cordoned
        record.cordoned = is_cordoned
        if released and record.state is Health.OUT:
            self._to_probation(record, now_s)

    def _take_device(self, record: _Record, device: DeviceReading, now_s: float) -> None:
        if device.lost:
            self._lose(record, device.problem or "GPU is lost", now_s)
            return
        before, pending_before = record.counters, record.pending
        record.counters = device.counters
        standing = dict(_standing(device.counters))
        record.pending = frozenset(words for words, rule in standing.items() if rule.action is Action.RESET)
        if record.state is Health.LOST:
            self._to_probation(record, now_s)
        for words, rule in standing.items():
            if rule.action is Action.SUSPECT and record.state is Health.PROBATION:
                record.since_s = now_s
            elif words not in pending_before or record.state is not Health.OUT:
                self._apply(record, rule, words, now_s)
        if _grew(before.ecc_uncorrected_volatile, device.counters.ecc_uncorrected_volatile):
            self._apply(record, rules.UNCORRECTED_ECC, rules.UNCORRECTED_ECC.words, now_s)
        was_reset = _fell(before.energy_mj, device.counters.energy_mj) or bool(pending_before and not record.pending)
        self._age(record, now_s, was_reset=was_reset)

    def _apply(self, record: _Record, rule: Rule, words: str, now_s: float) -> None:
        match rule.action:
            case Action.COUNT:
                return
            case Action.SUSPECT:
                if record.state is Health.PROBATION:
                    self._to_out(record, Action.REST, words, now_s)
                elif record.state in {Health.HEALTHY, Health.SUSPECT}:
                    record.state, record.since_s, record.fault = Health.SUSPECT, now_s, words
            case Action.REST | Action.RESET | Action.REPLACE:
                self._to_out(record, rule.action, words, now_s)

    def _to_out(self, record: _Record, action: Action, words: str, now_s: float) -> None:
        if record.state is Health.LOST:
            record.fault = words
            return
        if record.state is Health.PROBATION:
            record.probation_s = min(record.probation_s * 2, self._times.probation_limit_s)
        if record.state is Health.OUT and _SEVERITY[action] < _SEVERITY[record.action]:
            return
        record.energy_at_fault_mj = record.counters.energy_mj
        record.state, record.since_s, record.action, record.fault = Health.OUT, now_s, action, words

    def _to_probation(self, record: _Record, now_s: float) -> None:
        record.probation_s = max(record.probation_s, self._times.probation_s)
        record.state, record.since_s, record.action = Health.PROBATION, now_s, Action.COUNT

    def _lose(self, record: _Record, words: str, now_s: float) -> None:
        if record.state is not Health.LOST:
            reason = f"{record.fault}; {words}" if record.state is Health.OUT else words
            record.state, record.since_s, record.fault = Health.LOST, now_s, reason

    def _age(self, record: _Record, now_s: float, *, was_reset: bool) -> None:
        quiet_s = now_s - record.since_s
        match record.state:
            case Health.OUT:
                rested = record.action is Action.REST and quiet_s >= self._times.rest_s
                if rested or (was_reset and record.action is not Action.REPLACE):
                    self._to_probation(record, now_s)
            case Health.PROBATION:
                if quiet_s >= record.probation_s:
                    self._to_healthy(record, now_s)
                    record.probation_s = 0.0
            case Health.SUSPECT:
                if quiet_s >= self._times.suspect_s:
                    self._to_healthy(record, now_s)
            case _:
                return

    def _to_healthy(self, record: _Record, now_s: float) -> None:
        record.state, record.since_s, record.fault = Health.HEALTHY, now_s, ""

    def _verdict(self, record: _Record) -> Verdict:
        if record.cordoned:
            return _CORDONED
        return Verdict(record.state, record.fault)


_SEVERITY = {Action.COUNT: 0, Action.SUSPECT: 1, Action.REST: 2, Action.RESET: 3, Action.REPLACE: 4}


def _standing(counters: Counters) -> Iterator[tuple[str, Rule]]:
    """Yield the conditions that hold as long as the counters say so."""
    if counters.recovery_action:
        rule = rules.RECOVERY_ACTIONS.get(counters.recovery_action, rules.RECOVERY_ACTIONS[1])
        yield rule.words, rule
    if counters.remap_failed:
        yield rules.REMAP_FAILED.words, rules.REMAP_FAILED
    if counters.remap_pending:
        yield rules.REMAP_PENDING.words, rules.REMAP_PENDING
    if counters.retired_pending:
        yield rules.RETIRED_PENDING.words, rules.RETIRED_PENDING
    if counters.fabric_state in {1, 2}:
        yield rules.FABRIC_INCOMPLETE.words, rules.FABRIC_INCOMPLETE
    if counters.clocks_event_reasons and counters.clocks_event_reasons & rules.HARDWARE_SLOWDOWN_BITS:
        yield rules.HARDWARE_SLOWDOWN.words, rules.HARDWARE_SLOWDOWN


def _is_instance(uuid: str) -> bool:
    """Tell a MIG instance by its UUID, which begins so with every driver (node-side.md 1.5, uuid)."""
    return uuid.startswith("MIG-")


def _grew(before: int | None, after: int | None) -> bool:
    return before is not None and after is not None and after > before


def _fell(before: int | None, after: int | None) -> bool:
    return before is not None and after is not None and after < before
