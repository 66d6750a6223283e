"""What the page knows of a device's last hour."""

from __future__ import annotations

import pytest

from extender.pages.trace import KEPT, DeviceTraces
from tests.support.builders import A100_MIB, bound, device, node_facts, report, store_with

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_sample_says_what_was_booked_and_what_was_measured():
    store = store_with(device("GPU-0", utilisation=0.25))
    traces = DeviceTraces(store.snapshot, lambda: 5.0)
    await traces.round()
    store.set_pod(bound("p", memory_mib=A100_MIB // 2, compute_milli=300))
    await traces.round()
    assert traces.of("n1", "GPU-0") == [
        {"at": 5.0, "compute": 0.0, "memory": 0.0, "load": 0.25},
        {"at": 5.0, "compute": 0.3, "memory": 0.5, "load": 0.25},
    ]


async def test_load_that_nobody_measured_is_unknown_not_zero():
    store = store_with(device("GPU-0", utilisation=None))
    traces = DeviceTraces(store.snapshot, lambda: 5.0)
    await traces.round()
    assert traces.of("n1", "GPU-0")[0]["load"] is None


async def test_a_device_that_came_later_has_a_shorter_history_and_a_strange_one_none():
    store = store_with(device("GPU-0"))
    traces = DeviceTraces(store.snapshot, lambda: 5.0)
    await traces.round()
    store.set_node(node_facts("n2"))
    store.apply_report(report("n2", device("GPU-2")), 1001.0)
    await traces.round()
    assert [len(traces.of(*who)) for who in (("n1", "GPU-0"), ("n2", "GPU-2"), ("n1", "GPU-9"), ("n9", "GPU-0"))] == [
        2,
        1,
        0,
        0,
    ]


async def test_no_more_than_an_hour_is_kept():
    ticks = iter(range(1000))
    traces = DeviceTraces(store_with(device("GPU-0")).snapshot, lambda: float(next(ticks)))
    for _ in range(KEPT + 5):
        await traces.round()
    told = traces.of("n1", "GPU-0")
    assert (len(told), told[0]["at"]) == (KEPT, 5.0)
