"""Node totals: written where they differ, asserted again when they vanish, never below what is booked."""

from __future__ import annotations

import pytest

from extender.advertiser import Advertiser
from extender.metrics import Metrics
from extender.settings import Settings
from extender.store import ClusterStore
from node_agent.report import NodeState, Owner
from tests.support.builders import A100_MIB, bound, device, devices, node_facts, report, store_with
from tests.support.clock import ManualClock
from tests.support.kube import FakeKube

pytestmark = pytest.mark.anyio

FULL = {"tangram.dev/gpu": "200", "tangram.dev/gpu-memory": str(2 * A100_MIB), "tangram.dev/gpu-compute": "200"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Bench:
    def __init__(self, store: ClusterStore, **settings: object) -> None:
        self.store, self.kube, self.clock = store, FakeKube(), ManualClock()
        self.may_act = True
        self.advertiser = Advertiser(
            store,
            self.kube,
            Settings(**settings),
            self.clock,
            Metrics(),
            lambda: self.may_act,  # type: ignore[arg-type]
        )

    def see_written(self, node: str = "n1") -> None:
        """Let the watch show what was written."""
        written = self.kube.totals[node]
        totals = tuple((key.rpartition("/")[2], int(amount or 0)) for key, amount in written.items())
        self.store.set_node(node_facts(node, totals=tuple(pair for pair in totals if pair[1])))


async def test_the_totals_of_a_reported_node_are_written_once() -> None:
    bench = Bench(store_with(*devices(2)))
    assert await bench.advertiser.round() == 1
    assert bench.kube.totals == {"n1": FULL}
    bench.see_written()
    assert await bench.advertiser.round() == 0


async def test_reserved_memory_and_the_plugins_devices_are_not_advertised() -> None:
    bench = Bench(store_with(device("GPU-0", reserved_mib=500), device("GPU-1", owner=Owner.PLUGIN)))
    await bench.advertiser.round()
    assert bench.kube.totals["n1"]["tangram.dev/gpu-memory"] == str(A100_MIB - 500)
    assert bench.kube.totals["n1"]["tangram.dev/gpu"] == "100"


async def test_totals_that_kubelet_zeroed_are_asserted_again() -> None:
    bench = Bench(store_with(*devices(2)))
    await bench.advertiser.round()
    bench.see_written()
    await bench.advertiser.round()
    bench.store.set_node(node_facts())
    bench.kube.totals.clear()
    assert await bench.advertiser.round() == 1
    assert bench.kube.totals == {"n1": FULL}


async def test_nothing_is_retracted_because_reports_stop_or_the_driver_fails() -> None:
    bench = Bench(store_with(*devices(2)))
    await bench.advertiser.round()
    bench.see_written()
    bench.store.expire(10_000)
    bench.store.apply_report(report("n1", state=NodeState.NO_DRIVER), 10_001)
    assert await bench.advertiser.round() == 0


async def test_totals_are_never_below_what_is_booked() -> None:
    store = store_with(device())
    store.set_pod(bound("a", uuid="GPU-gone", memory_mib=5000, compute_milli=333))
    bench = Bench(store)
    await bench.advertiser.round()
    assert bench.kube.totals["n1"]["tangram.dev/gpu-memory"] == str(A100_MIB + 5000)
    # 333 thousandths are counted as 34 per cent.
    assert bench.kube.totals["n1"]["tangram.dev/gpu-compute"] == "134"


async def test_devices_that_are_really_gone_are_taken_off() -> None:
    bench = Bench(store_with(*devices(2)))
    await bench.advertiser.round()
    bench.see_written()
    bench.store.apply_report(report("n1", state=NodeState.NO_GPU), 1001)
    assert await bench.advertiser.round() == 1
    assert set(bench.kube.totals["n1"].values()) == {"0"}


async def test_a_node_without_devices_is_never_written() -> None:
    store = store_with()
    bench = Bench(store)
    assert await bench.advertiser.round() == 0


async def test_a_failed_write_waits_longer_each_time() -> None:
    bench = Bench(store_with(device()), advertise_interval_s=1.0)
    bench.kube.refuse_writes = 2
    assert await bench.advertiser.round() == 0
    assert await bench.advertiser.round() == 0
    assert bench.kube.refuse_writes == 1
    bench.clock.advance(1.0)
    assert await bench.advertiser.round() == 0
    bench.clock.advance(1.5)
    assert await bench.advertiser.round() == 0
    bench.clock.advance(0.5)
    assert await bench.advertiser.round() == 1


async def test_a_round_writes_a_bounded_number_of_nodes() -> None:
    store = store_with(device())
    for number in range(5):
        store.set_node(node_facts(f"m{number}"))
        store.apply_report(report(f"m{number}", device(f"GPU-m{number}")), 1000.0)
    bench = Bench(store, advertise_per_round=4)
    assert [await bench.advertiser.round() for _ in range(3)] == [4, 2, 0]


async def test_a_standby_writes_nothing_and_forgets_nothing() -> None:
    bench = Bench(store_with(device()))
    bench.may_act = False
    assert await bench.advertiser.round() == 0
    bench.may_act = True
    assert await bench.advertiser.round() == 1
