from __future__ import annotations

import pytest

from extender.usage import OTHERS, UsageTracker
from node_agent.report import Usage
from tests.support.builders import bound, device, report, store_with
from tests.support.clock import ManualClock

MINUTE_S = 60.0


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Scene:
    """One node with one A100; time passes by reports that the tracker looks at."""

    def __init__(self, *there):
        self.clock = ManualClock()
        self.store = store_with(device(), now=self.clock.now())
        for seen in there:
            self.store.set_pod(seen)
        self.tracker = UsageTracker(self.store, self.clock)

    async def pass_time(self, minutes: int, *usage: Usage, utilisation: float | None = None):
        for _ in range(minutes):
            held = device(utilisation=utilisation)
            self.store.apply_report(report("n1", held, usage=usage), self.clock.now())
            await self.tracker.round()
            self.clock.advance(MINUTE_S)

    def idle(self, after_s: float = 600.0):
        return [(each.pod, round(each.idle_s)) for each in self.tracker.view(after_s).idle]


def _use(name: str, ratio: float | None, mib: int = 1024) -> Usage:
    return Usage(pod_uid=f"uid-{name}", uuid="GPU-0", memory_mib=mib, sm_ratio=ratio)


@pytest.mark.anyio
async def test_pod_that_does_nothing_for_long_is_idle():
    scene = Scene(bound("a"))
    await scene.pass_time(20, _use("a", 0.0))
    assert scene.idle() == [("a", 1200)]


@pytest.mark.anyio
async def test_work_ends_idleness():
    scene = Scene(bound("a"))
    await scene.pass_time(20, _use("a", 0.0))
    await scene.pass_time(1, _use("a", 0.5))
    assert scene.idle() == []


@pytest.mark.anyio
async def test_what_is_not_known_is_never_idle():
    scene = Scene(bound("a"), bound("b"))
    await scene.pass_time(20, _use("a", None), _use("b", None), utilisation=0.0)
    assert scene.idle() == []


@pytest.mark.anyio
async def test_device_speaks_for_a_pod_that_is_alone():
    scene = Scene(bound("a"))
    await scene.pass_time(20, utilisation=0.0)
    assert scene.idle() == [("a", 1200)]


@pytest.mark.anyio
async def test_hours_count_the_greater_part_of_a_share():
    """8192 of 81920 MiB is a tenth, 100 thousandths too; half of the second pod's memory outweighs its compute."""
    scene = Scene(bound("a"), bound("b", memory_mib=40_960, compute_milli=100))
    await scene.pass_time(61, _use("a", 0.9), _use("b", 0.0))
    hours = scene.tracker.view().hours["default"]
    assert hours.booked == pytest.approx(0.1 + 0.5)
    assert hours.idle == pytest.approx(0.5)


@pytest.mark.anyio
async def test_nothing_is_counted_for_a_gap():
    scene = Scene(bound("a"))
    await scene.pass_time(1, _use("a", 0.0))
    scene.clock.advance(7200.0)
    await scene.pass_time(1, _use("a", 0.0))
    assert scene.tracker.view().hours["default"].booked == 0.0


@pytest.mark.anyio
async def test_pod_that_holds_more_memory_than_booked_is_over():
    scene = Scene(bound("a", memory_mib=8192), bound("b"))
    await scene.pass_time(1, _use("a", 0.1, mib=9000), _use("b", 0.1))
    assert [(each.pod, each.used_mib) for each in scene.tracker.view().over] == [("a", 9000)]


@pytest.mark.anyio
async def test_pod_that_takes_more_time_than_booked_is_over():
    scene = Scene(bound("a", compute_milli=100), bound("b", compute_milli=100))
    await scene.pass_time(1, _use("a", 0.16), _use("b", 0.14))
    assert [each.pod for each in scene.tracker.view().over] == ["a"]


@pytest.mark.anyio
async def test_time_that_nobody_else_wants_is_no_overuse():
    scene = Scene(bound("a", compute_milli=100))
    await scene.pass_time(1, _use("a", 1.0))
    assert scene.tracker.view().over == ()


@pytest.mark.anyio
async def test_pod_that_is_gone_is_forgotten():
    scene = Scene(bound("a"))
    await scene.pass_time(20, _use("a", 0.0))
    scene.store.release("uid-a")
    await scene.pass_time(1)
    assert scene.idle() == []
    assert scene.tracker._seen == {}


@pytest.mark.anyio
async def test_namespaces_are_bounded(monkeypatch):
    monkeypatch.setattr("extender.usage._MOST_NAMESPACES", 0)
    scene = Scene(bound("a"))
    await scene.pass_time(2, _use("a", 0.5))
    assert list(scene.tracker.view().hours) == [OTHERS]


@pytest.mark.anyio
async def test_those_that_stand_out_are_counted_at_each_round():
    scene = Scene(bound("a"), bound("b"))
    await scene.pass_time(62, _use("a", 0.0), _use("b", 0.1, mib=9000))
    assert scene.tracker.outstanding() == (1, 1)
