"""The short way for reports that only bring load, against the long way for every report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from extender.settings import Settings
from extender.store import ClusterStore
from node_agent.report import Answer, Health, Mode, NodeState, Owner, PluginResource, Report
from scoring.fleet import COLUMNS
from tests.support.builders import bound, device, node_facts, report

UUIDS = ("GPU-0", "GPU-1", "GPU-2")
_GENERATIONS = {"row_generation", "load_generation"}
"""Counters of writes; the long way may write the same values once more."""

loads = st.one_of(st.none(), st.floats(0, 1, width=32), st.sampled_from([2.5, 4294967295.0]))
CHANGES: tuple[dict[str, Any], ...] = (
    {},
    {"health": Health.OUT},
    {"fault": "XID 63"},
    {"foreign_mib": 4096},
    {"owner": Owner.PLUGIN},
    {"total_mib": 40_960},
    {"reserved_mib": 600},
    {"sm_milli": 500},
    {"mode": Mode.MPS},
    {"mode": Mode.MPS, "mode_ready": False},
    {"numa_node": 1},
    {"link_group": 1},
    {"mig_enabled": True},
    {"name": "Tesla T4"},
)
HARDWARE: tuple[tuple[dict[str, Any], ...], ...] = (
    *(({"uuid": "GPU-0", **change}, {"uuid": "GPU-1"}, {"uuid": "GPU-2"}) for change in CHANGES),
    ({"uuid": "GPU-0"}, {"uuid": "GPU-1"}),
    ({"uuid": "GPU-2"}, {"uuid": "GPU-1"}, {"uuid": "GPU-0"}),
    (),
)
"""What a node may have, few enough that a report often repeats the hardware of the one before."""

devices_with_load = st.tuples(st.sampled_from((*HARDWARE[:1], *HARDWARE)), st.tuples(loads, loads, loads))
steps = st.one_of(
    st.tuples(st.just("report"), devices_with_load),
    st.tuples(st.just("load"), st.tuples(loads, loads, loads)),
    st.tuples(st.just("load"), st.tuples(loads, loads, loads)),
    st.tuples(st.just("state"), st.sampled_from(list(NodeState))),
    st.tuples(st.just("plugin"), st.integers(0, 2)),
    st.tuples(st.just("book"), st.sampled_from([*UUIDS, "GPU-unknown"])),
    st.tuples(st.just("release"), st.sampled_from([*UUIDS, "GPU-unknown"])),
    st.tuples(st.just("cordon"), st.sampled_from([(), (UUIDS[0],)])),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 15.0, 60.0])),
)


@dataclass
class Node:
    """What the agent reports now; every step but those of the books changes something in it."""

    hardware: tuple[dict[str, Any], ...] = HARDWARE[0]
    loads: tuple[float | None, ...] = (0.0, 0.0, 0.0)
    state: NodeState = NodeState.OK
    used: int | None = None
    now: float = 1000.0

    def change(self, what: str, value: Any) -> None:
        match what:
            case "report":
                self.hardware, self.loads = value
            case "load":
                self.loads = value
            case "state":
                self.state = value
            case "plugin":
                self.used = value
            case "wait":
                self.now += value

    def report(self, sequence: int) -> Report:
        held = [device(**each, utilisation=load) for each, load in zip(self.hardware, self.loads, strict=False)]
        plugin = () if self.used is None else (_offered(self.used),)
        return report("n1", *held, sequence=sequence, state=self.state, plugin=plugin)


def _offered(used: int) -> PluginResource:
    return PluginResource(resource="nvidia.com/gpu", replicas=2, used=used, uuids=UUIDS)


@dataclass
class Side:
    """One store, and what it told the outside."""

    is_plain: bool
    store: ClusterStore = field(default_factory=lambda: ClusterStore(Settings()))
    growth: list[str] = field(default_factory=list)
    answers: list[Answer | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store.on_growth = lambda node, _: self.growth.append(node)
        self.store.set_node(node_facts())

    def do(self, what: str, value: Any, number: int, node: Node) -> None:
        match what:
            case "book":
                self.store.set_pod(bound(f"{value}-{number}", value))
            case "release":
                for at in range(number):
                    self.store.release(f"uid-{value}-{at}")
            case "cordon":
                self.store.set_node(node_facts(cordoned=frozenset(value)))
            case "wait":
                self.store.expire(node.now)
            case _:
                self.take(node.report(number + 1), node.now)

    def take(self, each: Report, now: float) -> None:
        record = self.store.node("n1")
        if self.is_plain and record is not None:
            record.steady = None
        self.answers.append(self.store.apply_report(each, now))

    def seen(self) -> dict[str, Any]:
        """Return everything that others can see, apart from how often it was written."""
        fleet, record = self.store.snapshot(), self.store.node("n1")
        assert record is not None
        columns = {name: getattr(fleet, name).tobytes() for name in COLUMNS if name not in _GENERATIONS}
        return {
            **columns,
            "uuids": fleet.uuids,
            "devices": tuple(record.devices.items()),
            "load": record.load,
            "arrived": record.arrived_at,
            "report": record.report,
            "totals": self.store.totals("n1"),
            "growth": self.growth,
            "answers": self.answers,
        }


@given(st.lists(steps, min_size=1, max_size=25))
@example([("load", (0.5,) * 3), ("book", "GPU-2"), ("report", (HARDWARE[-3], (0.5,) * 3)), ("load", (0.6,) * 3)])
@settings(max_examples=60, deadline=None)
def test_the_short_way_equals_the_long_way(script: list[tuple[str, Any]]) -> None:
    """Law: whatever is reported, booked and cordoned in whatever order, both ways leave the same to be seen."""
    sides, node = (Side(is_plain=False), Side(is_plain=True)), Node()
    for number, (what, value) in enumerate(script):
        node.change(what, value)
        for side in sides:
            side.do(what, value, number, node)
        assert sides[0].seen() == sides[1].seen()


@pytest.mark.parametrize("change", CHANGES[1:], ids=lambda change: ", ".join(change))
def test_each_change_of_a_device_alone_is_noticed(change: dict[str, Any]) -> None:
    plain, changed = (0.0,) * 3, ({"uuid": "GPU-0", **change}, {"uuid": "GPU-1"}, {"uuid": "GPU-2"})
    sides, node = (Side(is_plain=False), Side(is_plain=True)), Node()
    for number, hardware in enumerate((HARDWARE[0], changed, HARDWARE[0])):
        node.change("report", (hardware, plain))
        for side in sides:
            side.do("report", None, number, node)
        assert sides[0].seen() == sides[1].seen()


def test_a_heartbeat_that_only_brings_load_takes_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    store = ClusterStore(Settings())
    store.set_node(node_facts())
    store.apply_report(report("n1", device("GPU-0", utilisation=0.0)), 1000.0)
    monkeypatch.setattr(store, "_take_hardware", None)
    store.apply_report(report("n1", device("GPU-0", utilisation=1.0, temperature_celsius=70, used_mib=5)), 1e9)
    assert np.isclose(store.snapshot().load[0, 0], 1.0)
