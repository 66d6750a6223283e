"""What the store keeps of one node beside the fleet's columns. Changed by the store's verbs only."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from extender.hardware import DeviceFacts, LoadAverage
from extender.replicas import Replicas
from extender.steady import SteadyPart
from node_agent.report import NodeState as ReportedState
from node_agent.report import Report
from scoring.fleet import DeviceState, ModeCode, NodeState, Row

_RUNS_REMEMBERED = 4


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What the API server says of a node: allocatable CPU and host memory, and the totals of ours that it carries now.

    ``totals`` is resource name -> integer; a name that the node does not carry is absent. ``is_schedulable`` is False
    for a cordoned node, ``cordoned`` names single devices. ``has_plugin``: NVIDIA's device plugin offers devices there.
    """

    name: str
    cpu_milli: int = 0
    host_memory_mib: int = 0
    totals: tuple[tuple[str, int], ...] = ()
    is_schedulable: bool = True
    cordoned: frozenset[str] = frozenset()
    has_plugin: bool = False


@dataclass(frozen=True, slots=True)
class Room:
    """What decides, beside the books, how much a node takes.

    ``usable`` devices as far as their health goes; ``foreign_mib`` held by strangers on devices of ours;
    ``free_replicas`` of NVIDIA's device plugin, in all.
    """

    is_fresh: bool
    usable: frozenset[str]
    foreign_mib: int
    free_replicas: int

    def has_grown_since(self, before: Room) -> bool:
        """Return whether the node may take something that it did not take before."""
        return self.is_fresh and bool(
            not before.is_fresh
            or self.usable - before.usable
            or self.foreign_mib < before.foreign_mib
            or self.free_replicas > before.free_replicas
        )


@dataclass(slots=True)
class Settling:
    """Compute of one pod on one device, placed so recently that measured load does not show it yet."""

    until: float
    uid: str
    uuid: str
    compute_milli: int


@dataclass(slots=True)
class NodeRecord:
    """One node: hardware as reported, freshness, and what its agent has been told.

    ``facts`` is None while only an agent speaks of the node. ``devices`` is in slot order, ``replicas`` by UUID.
    ``steady`` is the part of the last report from which ``devices`` follow, None where something else has a say.
    """

    name: str
    row: Row
    facts: NodeFacts | None = None
    devices: dict[str, DeviceFacts] = field(default_factory=dict)
    replicas: dict[str, Replicas] = field(default_factory=dict)
    load: dict[str, LoadAverage] = field(default_factory=dict)
    settling: list[Settling] = field(default_factory=list)
    report: Report | None = None
    steady: SteadyPart | None = None
    arrived_at: float | None = None
    is_fresh: bool = False
    bookings_generation: int = 0
    retired_runs: deque[str] = field(default_factory=lambda: deque(maxlen=_RUNS_REMEMBERED))

    def is_old(self, report: Report) -> bool:
        """Return whether a report was overtaken: by a later one of the same run, or by a later run of the agent."""
        if self.report is None:
            return False
        if report.agent_run == self.report.agent_run:
            return report.sequence <= self.report.sequence
        return report.agent_run in self.retired_runs

    def take(self, report: Report, now: float) -> None:
        """Remember a report as the newest."""
        if self.report is not None and report.agent_run != self.report.agent_run:
            self.retired_runs.append(self.report.agent_run)
        self.report = report
        self.arrived_at = now
        self.is_fresh = report.state is not ReportedState.STALE

    def state(self, *, has_problems: bool, is_known_to_have_devices: bool) -> NodeState:
        """Return what is known of the node, as the fleet's column holds it."""
        if self.facts is None:
            return NodeState.EMPTY
        if has_problems:
            return NodeState.CONFLICTED
        if self.report is None:
            return NodeState.UNREPORTED if is_known_to_have_devices else NodeState.WITHOUT_DEVICES
        if not self.is_fresh:
            return NodeState.STALE
        return NodeState.FRESH if self.devices else NodeState.WITHOUT_DEVICES

    def settling_milli(self, now: float) -> dict[str, int]:
        """Forget what has settled and return the rest by device."""
        self.settling = [entry for entry in self.settling if entry.until > now]
        sums: dict[str, int] = {}
        for entry in self.settling:
            sums[entry.uuid] = sums.get(entry.uuid, 0) + entry.compute_milli
        return sums

    def is_plugins(self, uuid: str) -> bool:
        """Return whether NVIDIA's device plugin hands a device out, as far as its agent says."""
        return uuid in self.devices and self.devices[uuid].mode is ModeCode.PLUGIN

    def room(self) -> Room:
        """Return what decides, beside the books, how much the node takes."""
        devices = self.devices.values()
        return Room(
            self.is_fresh,
            frozenset(facts.uuid for facts in devices if facts.state >= DeviceState.SUSPECT),
            sum(facts.foreign_mib for facts in devices if facts.mode is not ModeCode.PLUGIN),
            sum(each.offered - each.taken for each in self.replicas.values()),
        )
