"""Cases H1 to H5: health, from an agent's sweep to the scheduler's answer (shared cases, from public bug reports)."""

from __future__ import annotations

import pytest

from node_agent.report import Health, Mig
from node_agent.simulated_description import LostFault, XidFault
from tests.support.agent import TIMES, Agent, agent
from tests.support.builders import device, pod
from tests.support.harness import Harness, harness

pytestmark = pytest.mark.anyio

NO_HEALTHY = {"n": "too few healthy GPUs"}
SHARES = ("one", "two", "three", "four")
MOMENT_S = 0.5


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def with_shares(bench: Harness, count: int = 1) -> Agent:
    """Return an agent on whose first device four pods run."""
    made = await agent(bench, count=count)
    for name in SHARES:
        there = {"tangram.dev/gpu-uuid": made.uuids[0]}
        assert await bench.run(pod(name, gpu_memory=1000, annotations=there), ["n"]) == "n"
    await made.tell()
    return made


def known(device: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in device.items() if name != "load"}


async def refused(bench: Harness) -> dict[str, str]:
    return (await bench.filter(pod("new", gpu_memory=100), ["n"]))["FailedNodes"]


async def metrics(bench: Harness) -> list[str]:
    bench.clock.advance(MOMENT_S * 4)
    return (await bench.http.get("/metrics")).text.splitlines()


@pytest.mark.parametrize("xid", [48, 79, 95, 119])
async def test_h1_a_fatal_xid_takes_the_device_out_and_names_every_pod_on_it(xid: int) -> None:
    bench = harness()
    made = await with_shares(bench)
    [uuid] = made.uuids
    await made.fault(XidFault(device=0, xid=xid))
    assert await refused(bench) == NO_HEALTHY
    await bench.app.alarms.round()
    about_pods = [note for note in bench.kube.events if note.kind == "Pod"]
    assert {note.name for note in about_pods} == set(SHARES)
    assert all(
        note.reason == "GpuFault" and f"XID {xid}" in note.message and uuid in note.message for note in about_pods
    )
    [about_node] = [note for note in bench.kube.events if note.kind == "Node"]
    assert about_node.name == "n"
    assert all(f"default/{name}" in about_node.message for name in SHARES)
    named = [line for line in await metrics(bench) if line.startswith("tangram_extender_pods_on_devices_in_trouble{")]
    assert len(named) == len(SHARES)
    assert all(any(f'pod="{name}"' in line and f'uuid="{uuid}"' in line for line in named) for name in SHARES)
    assert bench.store.snapshot().sharers[0, 0] == len(SHARES), "the pods keep what they hold"


async def test_h2_a_contained_ecc_error_puts_the_device_on_probation_and_it_comes_back() -> None:
    bench = harness()
    made = await agent(bench)
    await made.fault(XidFault(device=0, xid=94))
    assert await refused(bench) == NO_HEALTHY
    await made.later(TIMES.rest_s)
    assert made.node.sweep().devices[0].health is Health.PROBATION
    assert await refused(bench) == NO_HEALTHY
    await made.later(TIMES.probation_s)
    assert await refused(bench) == {}
    await bench.app.alarms.round()
    assert bench.kube.events == [], "out and back between two looks is no news"


async def test_h2_a_new_fault_during_probation_begins_it_anew() -> None:
    bench = harness()
    made = await agent(bench)
    await made.fault(XidFault(device=0, xid=94))
    await made.later(TIMES.rest_s)
    await made.fault(XidFault(device=0, xid=94))
    await made.later(TIMES.probation_s)
    assert await refused(bench) == NO_HEALTHY


@pytest.mark.parametrize("xid", [13, 31, 43, 45])
async def test_h3_an_applications_fault_leaves_the_device_in_use(xid: int) -> None:
    bench = harness()
    made = await with_shares(bench)
    await made.fault(XidFault(device=0, xid=xid))
    assert await bench.run(pod("new", gpu_memory=100), ["n"]) == "n"
    await bench.app.alarms.round()
    assert bench.kube.events == []


async def test_h4_of_eight_devices_the_lost_one_is_reported_as_lost_and_seven_stay() -> None:
    bench = harness()
    made = await with_shares(bench, count=8)
    [before] = (await bench.http.get("/v1/fleet")).json()["nodes"]
    await made.fault(LostFault(device=0, until_s=300))
    [node] = (await bench.http.get("/v1/fleet")).json()["nodes"]
    assert [each["health"] for each in node["devices"]] == ["lost"] + ["healthy"] * 7
    assert [each["state"] for each in node["devices"]] == ["out"] + ["healthy"] * 7
    assert [known(each) for each in node["devices"][1:]] == [known(each) for each in before["devices"][1:]]
    assert node["totals"] == before["totals"], "kubelet would refuse running pods after a restart"
    await bench.app.alarms.round()
    assert {note.reason for note in bench.kube.events} == {"GpuLost"}
    assert {note.name for note in bench.kube.events} == {"n", *SHARES}
    whole = [pod(f"whole-{number}", gpu=1) for number in range(8)]
    assert [await bench.run(each, ["n"]) for each in whole] == ["n"] * 7 + [""]
    await made.later(300)
    await made.later(TIMES.probation_s)
    assert await refused(bench) == {}


async def test_h5_a_split_device_without_instances_offers_nothing() -> None:
    bench = harness()
    await agent(bench, mig=())
    answer = await bench.filter(pod("new", gpu_memory=100), ["n"])
    assert answer["FailedAndUnresolvableNodes"] == {"n": "node has no GPU"}


async def test_h5_instances_behind_a_hole_in_the_index_are_found() -> None:
    def instance(number: int) -> object:
        mig = Mig(parent_uuid="GPU-0", profile="1g.10gb", gi_id=number, ci_id=0)
        return device(f"MIG-{number}", total_mib=9728, sm_milli=142, mode="mig", mig=mig)

    bench = harness({"n": [device("GPU-0", mig_enabled=True), instance(1), instance(5)]})
    pods = [pod(f"p{number}", gpu_memory=5000, annotations={"tangram.dev/gpu-sharing": "mig"}) for number in range(3)]
    assert [await bench.run(each, ["n"]) for each in pods] == ["n", "n", ""]
