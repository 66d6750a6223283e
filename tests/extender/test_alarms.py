"""Devices in trouble: told on change only, at a bounded rate, by the replica that acts."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from extender.alarms import APART_S, Alarms
from extender.kubeapi import EventNote
from extender.reflection import ReflectorStats
from extender.trouble_metrics import ReflectorCollector, TroubleCollector
from node_agent.report import Health, Owner
from tests.support.builders import A100_MIB, bound, device, node_facts, report, store_with
from tests.support.clock import ManualClock
from tests.support.kube import FakeKube

pytestmark = pytest.mark.anyio

FAULT = {"health": Health.OUT, "fault": "XID 79: GPU has fallen off the bus"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Bench:
    """One node with one device, and pods ``p0``, ``p1`` ... on it."""

    def __init__(self, pods: int = 1, *devices: object) -> None:
        self.store, self.kube, self.clock = store_with(*(devices or (device(),))), FakeKube(), ManualClock()  # type: ignore[arg-type]
        for number in range(pods):
            self.store.set_pod(bound(f"p{number}", memory_mib=100, compute_milli=1))
        self.may_act = True
        self.registry = CollectorRegistry()
        self.alarms = Alarms(self.store, self.kube, self.clock, self.registry, lambda: self.may_act)

    def see(self, **values: object) -> None:
        self.store.apply_report(report("n1", device(**values)), self.clock.now())  # type: ignore[arg-type]

    async def told(self, seconds: float = 0) -> list[EventNote]:
        """Return what a round writes."""
        self.clock.advance(seconds)
        self.kube.events.clear()
        await self.alarms.round()
        return list(self.kube.events)


async def test_a_fault_is_told_once_about_the_node_and_each_pod() -> None:
    bench = Bench(pods=3)
    bench.see(**FAULT)
    told = await bench.told()
    assert [(note.kind, note.name, note.type) for note in told] == [
        ("Node", "n1", "Warning"),
        *(("Pod", f"p{number}", "Warning") for number in range(3)),
    ]
    bench.see(**FAULT)
    assert await bench.told(APART_S) == []


async def test_another_fault_of_the_same_device_is_news_and_so_is_its_return() -> None:
    bench = Bench(pods=0)
    bench.see(**FAULT)
    await bench.told()
    bench.see(health=Health.OUT, fault="XID 48: double-bit ECC error")
    [again] = await bench.told(APART_S)
    assert "XID 48" in again.message
    bench.see()
    [back] = await bench.told(APART_S)
    assert (back.reason, back.type) == ("GpuReturned", "Normal")


async def test_a_device_that_flaps_is_told_of_at_most_so_often() -> None:
    bench = Bench(pods=0)
    written = 0
    for _ in range(int(APART_S) * 4):
        bench.see(**FAULT)
        written += len(await bench.told(0.5))
        bench.see()
        written += len(await bench.told(0.5))
    assert 2 <= written <= 5


async def test_a_standby_tells_nothing_and_the_new_holder_what_is_wrong_then() -> None:
    bench = Bench()
    bench.may_act = False
    bench.see(**FAULT)
    assert await bench.told() == []
    assert len(bench.alarms.troubles()) == 1
    bench.may_act = True
    assert {note.kind for note in await bench.told()} == {"Node", "Pod"}


async def test_trouble_that_ended_before_anybody_could_tell_is_no_news() -> None:
    bench = Bench()
    bench.may_act = False
    bench.see(**FAULT)
    await bench.told()
    bench.see()
    bench.may_act = True
    assert await bench.told() == []


async def test_events_are_written_a_few_at_a_time_and_none_is_lost() -> None:
    bench = Bench(pods=30)
    bench.see(**FAULT)
    rounds = [len(await bench.told(0.5)) for _ in range(6)]
    assert sum(rounds) == 31
    assert max(rounds) <= 10


async def test_an_event_that_could_not_be_sent_is_sent_later() -> None:
    bench = Bench(pods=0)
    bench.see(**FAULT)
    bench.kube.refuse_writes = 1
    assert await bench.told() == []
    assert len(await bench.told(0.5)) == 1
    assert b'tangram_extender_trouble_events_total{outcome="KubeUnreachable"} 1.0' in generate_latest(bench.registry)


async def test_a_node_that_is_removed_takes_its_troubles_along() -> None:
    bench = Bench(pods=0)
    bench.see(**FAULT)
    await bench.told()
    bench.store.remove_node("n1")
    await bench.told()
    assert bench.alarms.troubles() == {}


async def test_an_overbooked_device_is_told_of_with_the_pods_on_it() -> None:
    bench = Bench(pods=0)
    for name in ("a", "b"):
        bench.store.set_pod(bound(name, memory_mib=A100_MIB))
    told = await bench.told()
    assert {(note.kind, note.name, note.reason) for note in told} == {
        ("Node", "n1", "GpuOverbooked"),
        ("Pod", "a", "GpuOverbooked"),
        ("Pod", "b", "GpuOverbooked"),
    }
    bench.store.release("uid-a")
    [end] = await bench.told(APART_S)
    assert "no more is given away" in end.message


async def test_a_cordon_is_told_of_the_node_and_alarms_no_pod() -> None:
    bench = Bench()
    bench.store.set_node(node_facts(cordoned=frozenset({"GPU-0"})))
    [note] = await bench.told()
    assert (note.kind, note.reason, note.type) == ("Node", "GpuCordoned", "Normal")
    assert "default/p0" in note.message


async def test_a_device_that_both_sides_hand_out_is_an_alarm() -> None:
    bench = Bench()
    bench.see(owner=Owner.PLUGIN)
    told = await bench.told()
    assert {(note.kind, note.reason) for note in told} == {("Node", "GpuClaimedTwice"), ("Pod", "GpuClaimedTwice")}
    bench.registry.register(TroubleCollector(bench.store, bench.alarms))
    assert b'tangram_extender_devices_in_trouble{kind="contradiction"} 1.0' in generate_latest(bench.registry)


async def test_a_cause_that_is_not_there_counts_zero_and_a_pod_that_ended_is_not_named() -> None:
    bench = Bench()
    bench.registry.register(TroubleCollector(bench.store, bench.alarms))
    bench.see(**FAULT)
    await bench.told()
    text = generate_latest(bench.registry).decode()
    assert 'tangram_extender_devices_in_trouble{kind="lost"} 0.0' in text
    assert 'pod="p0"' in text
    bench.store.release("uid-p0")
    assert 'pod="p0"' not in generate_latest(bench.registry).decode()


def test_reflectors_are_counted_by_what_they_watch() -> None:
    registry = CollectorRegistry()
    stats = {"nodes": ReflectorStats(lists=2, skips=1, last_contact=90.0), "pods": ReflectorStats()}
    registry.register(ReflectorCollector(lambda: stats, lambda: 100.0))
    text = generate_latest(registry).decode()
    assert 'tangram_extender_reflector_lists_total{kind="nodes"} 2.0' in text
    assert 'tangram_extender_reflector_skips_total{kind="nodes"} 1.0' in text
    assert 'tangram_extender_reflector_silence_seconds{kind="nodes"} 10.0' in text
    assert 'silence_seconds{kind="pods"}' not in text, "before the first contact its age is not known"
