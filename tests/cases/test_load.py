"""Cases L1 to L4: load, and memory that is not ours (shared cases, from public bug reports)."""

from __future__ import annotations

import pytest

from tests.support.builders import A100_MIB, device, pod, report
from tests.support.harness import harness

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_l1_memory_of_a_foreign_process_is_never_offered() -> None:
    bench = harness({"n": [device(foreign_mib=A100_MIB // 2)]})
    assert await bench.run(pod("big", gpu_memory=A100_MIB // 2 + 1), ["n"]) == ""
    assert await bench.run(pod("half", gpu_memory=A100_MIB // 2), ["n"]) == "n"


@pytest.mark.parametrize("policy", ["binpack", "spread", "latency"])
async def test_l1_with_everything_else_equal_the_device_with_foreign_memory_comes_last(policy: str) -> None:
    bench = harness({"busy": [device("GPU-busy", foreign_mib=A100_MIB // 2)], "idle": [device("GPU-idle")]})
    asked = pod("p", gpu_memory=8192, annotations={"tangram.dev/gpu-policy": policy})
    scores = await bench.prioritize(asked, ["busy", "idle"])
    assert scores["idle"] == 10 > scores["busy"]


async def test_l2_memory_reserved_by_the_driver_is_not_offered() -> None:
    bench = harness({"n": [device(name="Tesla T4", total_mib=15_360, reserved_mib=450)]})
    assert await bench.run(pod("all", gpu_memory=15_360), ["n"]) == ""
    assert await bench.run(pod("rest", gpu_memory=14_910), ["n"]) == "n"


@pytest.mark.parametrize("utilisation", [4_294_967_295, 250, 1.01, -0.5, None])
async def test_l3_a_utilisation_that_makes_no_sense_is_unknown_and_the_pod_runs(utilisation: float | None) -> None:
    bench = harness({"n": [device(utilisation=utilisation)]})
    [node] = (await bench.http.get("/v1/fleet")).json()["nodes"]
    assert node["devices"][0]["load"] is None
    assert await bench.run(pod("p", gpu_memory=100), ["n"]) == "n"


async def test_l4_a_node_whose_reports_stopped_gets_nothing_new_and_comes_back() -> None:
    bench = harness({"n": [device()]})
    assert await bench.run(pod("running", gpu_memory=8192), ["n"]) == "n"
    bench.clock.advance(46)
    bench.store.expire(bench.clock.now())
    answer = await bench.filter(pod("new", gpu_memory=100), ["n"])
    assert answer["FailedNodes"] == {"n": "no fresh report from the node's GPU agent"}
    assert bench.store.snapshot().booked_mib[0, 0] == 8192
    assert (await bench.report(report("n", device()))).status_code == 200
    assert await bench.run(pod("newer", gpu_memory=100), ["n"]) == "n"


async def test_of_two_equal_nodes_the_one_at_90_per_cent_gets_the_pod_last() -> None:
    bench = harness({"hot": [device("GPU-h", utilisation=0.9)], "cool": [device("GPU-c", utilisation=0.05)]})
    for number in range(50):
        scores = await bench.prioritize(pod(f"p{number}", gpu_memory=8192), ["hot", "cool"])
        assert scores["cool"] == 10 > scores["hot"]
        bench.app.services.forthcoming.end(f"uid-p{number}")
