"""Waking waiting pods: one annotation when room appeared that the scheduler cannot see, none otherwise."""

from __future__ import annotations

import pytest

from extender.metrics import Metrics
from extender.settings import Settings
from extender.waker import Waker
from node_agent.report import Health
from tests.support.builders import bound, device, report, store_with
from tests.support.clock import ManualClock
from tests.support.kube import FakeKube

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Bench:
    def __init__(self) -> None:
        self.kube, self.clock = FakeKube(), ManualClock()
        self.may_act = True
        self.waker = Waker(self.kube, Settings(), self.clock, Metrics(), lambda: self.may_act)


async def test_growth_after_a_refusal_wakes_once() -> None:
    bench = Bench()
    bench.waker.note_refusal()
    bench.waker.note_growth("n1", False)
    assert await bench.waker.round()
    assert not await bench.waker.round()
    [(node, key, _)] = bench.kube.annotations
    assert (node, key) == ("n1", "tangram.dev/capacity-grew")


async def test_growth_wakes_nobody_when_nobody_waits() -> None:
    bench = Bench()
    bench.waker.note_growth("n1", False)
    assert not await bench.waker.round()


async def test_a_pods_end_wakes_only_shortly_after_a_refusal() -> None:
    bench = Bench()
    bench.waker.note_refusal()
    bench.clock.advance(6)
    bench.waker.note_growth("n1", True)
    assert not await bench.waker.round()
    bench.waker.note_refusal()
    bench.waker.note_growth("n1", True)
    assert await bench.waker.round()


async def test_writes_are_rate_limited() -> None:
    bench = Bench()
    for _ in range(2):
        bench.waker.note_refusal()
        bench.waker.note_growth("n1", False)
        await bench.waker.round()
    assert len(bench.kube.annotations) == 1
    bench.clock.advance(5)
    assert await bench.waker.round()


async def test_a_failed_write_is_tried_again() -> None:
    bench = Bench()
    bench.waker.note_refusal()
    bench.waker.note_growth("n1", False)
    bench.kube.refuse_writes = 1
    assert not await bench.waker.round()
    bench.clock.advance(5)
    assert await bench.waker.round()


async def test_a_standby_wakes_nobody() -> None:
    bench = Bench()
    bench.may_act = False
    bench.waker.note_refusal()
    bench.waker.note_growth("n1", False)
    assert not await bench.waker.round()


@pytest.mark.parametrize(
    ("before", "after", "grows"),
    [
        pytest.param({"health": Health.OUT}, {}, True, id="a device recovered"),
        pytest.param({"foreign_mib": 100}, {"foreign_mib": 50}, True, id="foreign memory was freed"),
        pytest.param({}, {"health": Health.OUT}, False, id="a device went out"),
        pytest.param({}, {"foreign_mib": 50}, False, id="foreign memory was taken"),
        pytest.param({"utilisation": 0.9}, {"utilisation": 0.1}, False, id="load alone never refuses"),
    ],
)
def test_the_store_tells_growth_that_no_pod_brought(
    before: dict[str, object], after: dict[str, object], grows: bool
) -> None:
    store = store_with(device(**before))
    told: list[tuple[str, bool]] = []
    store.on_growth = lambda node, by_pod_end: told.append((node, by_pod_end))
    store.apply_report(report("n1", device(**after)), 1001.0)
    assert told == ([("n1", False)] if grows else [])


def test_the_store_tells_that_a_node_came_back_and_that_a_pod_ended() -> None:
    store = store_with(device())
    store.set_pod(bound("a"))
    store.expire(2000.0)
    told: list[tuple[str, bool]] = []
    store.on_growth = lambda node, by_pod_end: told.append((node, by_pod_end))
    store.apply_report(report("n1", device()), 2001.0)
    store.release("uid-a")
    assert told == [("n1", False), ("n1", True)]
