"""One simulated agent without threads or sockets: sweeps, judges, and remembers what it told whom and what it heard."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec.structs import replace

from node_agent.health import HealthTimes, HealthTracker
from node_agent.inventory import Circumstances, Identity, Inventory
from node_agent.pace import Pace, PaceTimes
from node_agent.readings import Claims
from node_agent.report import Answer, Booking, Health, NodeState, Report
from node_agent.significance import matters
from node_agent.simulated import Interventions, claims_of, device_uuid, instance_uuid
from node_agent.simulated_description import Description, Fault
from node_agent.simulated_reader import SimulatedReader

ValueT = TypeVar("ValueT")

_SETTLE_S = 1.0
"""How long after new bookings the pods' processes show up and are worth a sweep."""


@dataclass(slots=True)
class Stream:
    """What one extender was told last, and the pace of telling it more."""

    pace: Pace
    told: Report | None = None
    generation: int | None = None
    bookings: tuple[Booking, ...] = ()
    cordoned: frozenset[str] = frozenset()

    def is_news(self, report: Report) -> bool:
        """Tell whether the extender should not wait for the heartbeat."""
        return matters(self.told, report)

    def failed(self, now_s: float) -> None:
        """Note a push that was not taken; bookings are asked for in full next time."""
        self.generation = None
        self.pace.failed(now_s)


@dataclass(slots=True)
class SimulatedNode:
    """The state of one simulated agent."""

    description: Description
    endpoint_count: int
    pace_times: PaceTimes
    health_times: HealthTimes
    random: Callable[[], float]
    clock: Callable[[], float] = time.monotonic
    is_silent: bool = False
    planned_s: float | None = None
    streams: list[Stream] = field(init=False)
    _reader: SimulatedReader = field(init=False)
    _health: HealthTracker = field(init=False)
    _inventory: Inventory = field(init=False)
    _claims: Claims = field(init=False)
    _settle_s: float | None = field(init=False, default=None)
    _report: Report | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        now_s = self.clock()
        self.streams = [Stream(Pace(self.pace_times, self.random, now_s)) for _ in range(self.endpoint_count)]
        self._reader = SimulatedReader(self.description, self.clock, self.bookings)
        self._claims = claims_of(self.description)
        self._health = HealthTracker(self.health_times)
        self._inventory = Inventory(Identity(self.description.node, secrets.token_hex(8), "simulated"))

    def sweep(self) -> Report:
        """Read, judge and build the next report."""
        self._settle_s = None
        readings = self._reader.read()
        cordoned = frozenset(uuid for stream in self.streams for uuid in stream.cordoned)
        is_fresh = readings.state in {NodeState.OK, NodeState.DEGRADED}
        verdicts = self._health.observe(readings, self.clock(), cordoned) if is_fresh else self._health.verdicts()
        circumstances = Circumstances(bookings=self.bookings(), verdicts=verdicts, claims=self._claims)
        self._report = self._inventory.report(readings, circumstances, self._reader.tenant)
        return self._report

    def bookings(self) -> tuple[Booking, ...]:
        """Return the shares that any extender has booked here."""
        if len(self.streams) == 1:
            return self.streams[0].bookings
        merged = {
            (each.pod_uid, each.container, each.uuid): each for stream in self.streams for each in stream.bookings
        }
        return tuple(merged.values())

    def take_answer(self, number: int, report: Report, answer: Answer, now_s: float) -> None:
        """Remember what one extender answered to this report."""
        stream = self.streams[number]
        stream.told = report
        stream.generation = answer.bookings_generation
        if stream.cordoned != frozenset(answer.cordoned):
            stream.cordoned = frozenset(answer.cordoned)
            self._settle_s = now_s
        if answer.bookings is not None and answer.bookings != stream.bookings:
            stream.bookings = answer.bookings
            self._settle_s = now_s + _SETTLE_S
        stream.pace.set_heartbeat(answer.heartbeat_s)
        stream.pace.succeeded(now_s)

    def due_s(self) -> float:
        """Return when the node wants its next turn if nothing happens to it."""
        report = self._report
        pace_s = min(
            stream.pace.due_s(is_urgent=report is not None and stream.is_news(report)) for stream in self.streams
        )
        return pace_s if self._settle_s is None else min(pace_s, self._settle_s)

    def next_possible_s(self, now_s: float) -> float:
        """Return the earliest time at which urgent news may be pushed."""
        return max(now_s, min(stream.pace.due_s(is_urgent=True) for stream in self.streams))

    def is_restless(self) -> bool:
        """Tell whether faults or recoveries are under way, so that time alone changes the report."""
        return bool(self._reader.interventions.faults) or any(
            verdict.health not in {Health.HEALTHY, Health.CORDONED} for verdict in self._health.verdicts().values()
        )

    def uuids(self) -> list[str]:
        """Return the UUIDs of the schedulable devices."""
        node = self.description.node
        found: list[str] = []
        for index, row, _ in self.description.rows():
            if row.mig is None:
                found.append(device_uuid(node, index))
            else:
                found.extend(instance_uuid(node, index, number) for number in range(len(row.mig)))
        return found

    def set_utilisation(self, uuid: str, value: float | None) -> None:
        """Override a device's load, or stop doing so."""
        before = self._reader.interventions
        self._reader.interventions = Interventions(
            _with(before.utilisation, uuid, value), before.foreign_mib, before.faults
        )

    def set_foreign(self, uuid: str, memory_mib: int | None) -> None:
        """Override the memory that foreign processes hold, or stop doing so."""
        before = self._reader.interventions
        self._reader.interventions = Interventions(
            before.utilisation, _with(before.foreign_mib, uuid, memory_mib), before.faults
        )

    def plant_fault(self, fault: Fault) -> None:
        """Add a fault whose times are counted from now."""
        now_s = self._reader.elapsed_s()
        shifted = replace(fault, at_s=fault.at_s + now_s, until_s=fault.until_s + now_s)
        before = self._reader.interventions
        self._reader.interventions = Interventions(before.utilisation, before.foreign_mib, (*before.faults, shifted))


def _with(before: Mapping[str, ValueT], uuid: str, value: ValueT | None) -> dict[str, ValueT]:
    changed = {key: each for key, each in before.items() if key != uuid}
    return changed if value is None else {**changed, uuid: value}
