"""``/v1/explain`` over HTTP: what was asked as understood, and what each device lacks, in numbers."""

from __future__ import annotations

import pytest

from extender.objects import Container, Metadata, Pod, PodSpec, Resources
from node_agent.report import Health
from tests.support.agent import plugin_agent
from tests.support.builders import device, devices, pod
from tests.support.harness import Harness, harness

pytestmark = pytest.mark.anyio

GIB = 1024


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def explained(bench: Harness, asked: Pod) -> dict[str, object]:
    bench.kube.add(asked)
    names = [record.name for record in bench.store.nodes()]
    await bench.filter(asked, names)
    answer = await bench.http.get(f"/v1/explain/default/{asked.metadata.name}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a8_forty_gib_on_each_of_two_devices_names_the_two_free_amounts() -> None:
    held = [device(f"GPU-{number}", foreign_mib=80 * GIB - free) for number, free in enumerate((10 * GIB, 30 * GIB))]
    answer = await explained(harness({"n": held}), pod("p", gpu=2, gpu_memory=80 * GIB))
    words = "\n".join(answer["words"])
    assert f"{40 * GIB} MiB needed, {10 * GIB} of" in words
    assert f"{40 * GIB} MiB needed, {30 * GIB} of" in words
    [node] = answer["diagnosis"]["nodes"]
    assert [each["free_mib"] for each in node["devices"]] == [10 * GIB, 30 * GIB]
    [asked] = answer["diagnosis"]["asked"]["containers"]
    assert (asked["count"], asked["memory_mib"]) == (2, 40 * GIB)


async def test_a_device_that_is_out_is_explained_by_its_fault() -> None:
    fault = "XID 79: GPU has fallen off the bus"
    bench = harness({"n": [device(health=Health.OUT, fault=fault)]})
    assert fault in "\n".join((await explained(bench, pod("p", gpu_memory=100)))["words"])


async def test_the_answer_is_bounded_on_a_large_fleet() -> None:
    bench = harness({f"n{number}": devices(8, foreign_mib=81_000) for number in range(60)})
    answer = await explained(bench, pod("p", gpu_memory=8192))
    assert len(answer["diagnosis"]["nodes"]) <= 10
    assert sum(count["nodes"] for count in answer["diagnosis"]["counts"]) == 60
    assert len(answer["words"]) < 60


def wants(name: str, count: int, **marks: str) -> Pod:
    limits = {"nvidia.com/gpu": str(count)}
    annotations = {"tangram.dev/" + key.replace("_", "-"): text for key, text in marks.items()}
    return Pod(
        metadata=Metadata(name=name, namespace="default", uid=f"uid-{name}", annotations=annotations),
        spec=PodSpec(containers=(Container(name="main", resources=Resources(requests=limits, limits=limits)),)),
    )


async def test_a_pod_of_the_device_plugin_is_told_what_the_nodes_offer() -> None:
    bench = harness()
    await plugin_agent(bench, "T4", 4, used=3)
    answer = await explained(bench, wants("p", 2))
    assert answer["state"] == "waiting"
    [offer] = answer["plugin"]["nodes"][0]["offers"]
    assert (offer["asked"], offer["free"], offer["taken"], offer["replicas"]) == (2, 1, 3, 4)
    assert "  nvidia.com/gpu: 2 asked, 1 free of 4" in answer["words"]


async def test_conditions_that_the_plugins_devices_do_not_meet_are_named() -> None:
    bench = harness()
    await plugin_agent(bench, "T4", 2)
    answer = await explained(bench, wants("p", 1, gpu_architecture=">=ampere"))
    assert "  nvidia.com/gpu: some of its 2 devices do not meet gpu-architecture" in answer["words"]


async def test_a_pod_of_the_device_plugin_that_fits_is_told_where() -> None:
    bench = harness()
    await plugin_agent(bench, "T4", 1)
    answer = await explained(bench, wants("p", 1))
    assert any(line.startswith("Node n fits, score") for line in answer["words"])


async def test_a_node_without_the_resource_says_so() -> None:
    bench = harness({"n": [device()]})
    answer = await explained(bench, wants("p", 1))
    assert "  nvidia.com/gpu: not offered there" in answer["words"]
