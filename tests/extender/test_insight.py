from __future__ import annotations

from dataclasses import replace

import pytest

from extender.errors import KubeUnreachable
from extender.kubeapi import EventNote
from extender.pod_events import PLACED, WAITS
from tests.support.builders import device, pod
from tests.support.harness import Harness, harness
from tests.support.kube import FakeKube

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class EventKube(FakeKube):
    """The API server's part in events; ``events`` are those that were written."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[EventNote] = []

    async def create_event(self, note: EventNote) -> None:
        self._maybe_refuse()
        self.events.append(note)


def _scene(*, acts: bool = True, **settings: object) -> tuple[Harness, EventKube]:
    """One node with one A100; the API server takes events."""
    bench, kube = harness({"a": [device("GPU-a")]}, **settings), EventKube()
    insight = bench.app.services.insight
    insight._world = replace(insight._world, kube=kube, may_act=lambda: acts)
    return bench, kube


async def _refuse(bench: Harness, kube: EventKube, **asks: int):
    asked = pod("p", **(asks or {"gpu_memory": 100_000}))
    kube.add(asked)
    await bench.filter(asked, ["a"])
    return asked


async def test_pod_that_waits_gets_an_event_with_the_nearest_change():
    bench, kube = _scene()
    await _refuse(bench, kube)
    await bench.app.services.insight.follow_up()
    (event,) = kube.events
    assert (event.kind, event.name, event.uid, event.reason) == ("Pod", "p", "uid-p", WAITS)
    assert event.message == (
        "0/1 nodes have the GPUs: 1 request is larger than any GPU of the node. "
        "Would help: ask 81920 MiB of each GPU (gpu-memory: 81920)."
    )


async def test_nothing_is_written_twice():
    bench, kube = _scene()
    asked = await _refuse(bench, kube)
    for _ in range(3):
        await bench.filter(asked, ["a"])
        await bench.app.services.insight.follow_up()
    assert len(kube.events) == 1


async def test_end_of_the_wait_is_told():
    bench, kube = _scene()
    asked = await _refuse(bench, kube, gpu_memory=8192, gpu_compute=100)
    await bench.app.services.insight.follow_up()
    assert kube.events == []
    await bench.filter(asked, ["nowhere"])
    await bench.app.services.insight.follow_up()
    bench.kube.add(asked)
    assert await bench.bind(asked, "a") == ""
    await bench.app.services.insight.follow_up()
    assert [event.reason for event in kube.events] == [WAITS, PLACED]


async def test_replica_without_the_lease_writes_no_event():
    bench, kube = _scene(acts=False)
    await _refuse(bench, kube)
    await bench.app.services.insight.follow_up()
    assert kube.events == []
    assert bench.app.services.insight.event_outcomes["not-active"] == 1


async def test_pod_that_is_gone_meanwhile_gets_none():
    bench, kube = _scene()
    await _refuse(bench, kube)
    kube.remove("p")
    await bench.app.services.insight.follow_up()
    assert kube.events == []


async def test_refused_event_is_counted_and_forgotten():
    bench, kube = _scene()
    await _refuse(bench, kube)
    kube.refuse_writes = 1
    await bench.app.services.insight.follow_up()
    await bench.app.services.insight.follow_up()
    assert kube.events == []
    assert bench.app.services.insight.event_outcomes[KubeUnreachable.code] == 1


async def test_few_events_are_written_a_round():
    bench, kube = _scene()
    for number in range(20):
        asked = pod(f"p{number}", gpu_memory=100_000)
        kube.add(asked)
        await bench.filter(asked, ["a"])
    await bench.app.services.insight.follow_up()
    assert len(kube.events) == 3


async def test_costly_explanations_leave_time_for_decisions():
    """An event that took 2 s is followed by 38 s of rest: a twentieth of the time."""
    bench, kube = _scene()
    insight = bench.app.services.insight
    written = kube.create_event

    async def slow(note: EventNote) -> None:
        bench.clock.advance(2.0)
        await written(note)

    kube.create_event = slow  # type: ignore[method-assign]
    await _refuse(bench, kube)
    await insight.follow_up()
    asked = pod("q", gpu_memory=100_000)
    kube.add(asked)
    await bench.filter(asked, ["a"])
    bench.clock.advance(37.0)
    await insight.follow_up()
    assert len(kube.events) == 1
    bench.clock.advance(1.0)
    await insight.follow_up()
    assert len(kube.events) == 2


async def test_explanation_of_a_wait_is_kept():
    bench, kube = _scene()
    insight = bench.app.services.insight
    insight.history.start()
    try:
        await _refuse(bench, kube)
        await insight.follow_up()
        kube.remove("p")
        told = await insight.told("default", "p", {})
    finally:
        insight.history.stop()
    assert told.now is None
    assert [attempt.reasons for attempt in told.attempts] == [{"DeviceTooSmall": 1}]
    assert b"81920 MiB in all" in bytes(told.explanations[0].body)


async def test_winner_and_runners_up_of_a_sampled_pod_are_kept():
    bench, kube = _scene()
    insight = bench.app.services.insight
    insight.history.start()
    try:
        await _refuse(bench, kube, gpu_memory=8192)
        await insight.follow_up()
        told = await insight.told("default", "p", {})
    finally:
        insight.history.stop()
    assert b"Node a fits, score" in bytes(told.explanations[0].body)


async def test_unreadable_history_is_told_beside_the_present():
    bench, kube = _scene(history={"path": "/dev/full"})
    insight = bench.app.services.insight
    insight.history.start()
    try:
        asked = await _refuse(bench, kube)
        told = await insight.told("default", "p", {})
    finally:
        insight.history.stop()
    assert told.now is not None
    assert told.now.words[0] == "Pod default/p waits: the only node cannot take it now."
    assert told.peers[0].problem.startswith("history: ")
    assert (await bench.filter(asked, ["a"]))["Error"] == ""


async def test_decisions_go_on_while_nothing_can_be_kept():
    bench, kube = _scene(history={"path": "/dev/full"})
    bench.app.services.insight.history.start()
    try:
        assert await bench.run(pod("q", gpu_memory=8192), ["a"]) == "a"
    finally:
        bench.app.services.insight.history.stop()
    assert sum(bench.app.services.insight.history.lost.values()) >= 1
    assert kube.events == []


async def test_an_extender_without_lists_does_not_audit():
    assert await harness({"a": [device()]}).app.services.insight.audited() is None


async def test_invalid_pod_is_explained_not_raised():
    bench, kube = _scene()
    kube.add(pod("p", gpu_memory="many"))
    told = await bench.app.services.insight.told("default", "p", {})
    assert told.now is not None
    assert told.now.state == "invalid"
    assert "many" in told.now.problems[0]


async def test_losses_events_and_holders_are_metrics():
    bench, kube = _scene()
    await _refuse(bench, kube)
    await bench.app.services.insight.follow_up()
    bench.app.services.insight.history.lost["SQLITE_FULL"] += 3
    text = (await bench.http.get("/metrics")).text
    assert 'tangram_extender_explanations_lost_total{cause="SQLITE_FULL"} 3.0' in text
    assert 'tangram_extender_pod_events_total{outcome="written"} 1.0' in text
    assert 'tangram_extender_gpu_holders{kind="idle"} 0.0' in text
