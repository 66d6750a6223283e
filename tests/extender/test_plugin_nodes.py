"""Pods that ask NVIDIA's device plugin, from filter to bind, and devices that an operator cordons."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.holdings import ObservedPod
from extender.objects import Container, Metadata, Node, NodeStatus, Pod, PodSpec, Resources
from extender.observing import observe_node, observe_pod
from extender.replicas import Replicas, expected_load, replicas_of
from extender.settings import Settings
from extender.store import ClusterStore
from node_agent.report import Health, Owner, PluginResource
from scoring.request import PluginAsk
from tests.support.agent import Agent, agent, plugin_agent
from tests.support.builders import PREFIX, device, identity, node_facts, pod, report
from tests.support.harness import Harness, as_json, harness

pytestmark = pytest.mark.anyio

GPU = "nvidia.com/gpu"
NO_REPLICA = {"n": "NVIDIA's device plugin has no free replica"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def wants(name: str = "p", count: int = 1, resource: str = GPU, **annotations: str) -> Pod:
    limits = {resource: str(count)}
    marks = {PREFIX + key.replace("_", "-"): text for key, text in annotations.items()}
    return Pod(
        metadata=Metadata(name=name, namespace="default", uid=f"uid-{name}", annotations=marks),
        spec=PodSpec(containers=(Container(name="main", resources=Resources(requests=limits, limits=limits)),)),
    )


async def refused(bench: Harness, asked: Pod | None = None) -> dict[str, str]:
    return (await bench.filter(asked or wants("new"), ["n"]))["FailedNodes"]


async def test_pods_run_until_the_replicas_are_gone_without_a_report_in_between() -> None:
    bench = harness()
    await plugin_agent(bench, "T4", 2)
    assert [await bench.run(wants(f"p{number}"), ["n"]) for number in range(3)] == ["n", "n", ""]
    assert await refused(bench) == NO_REPLICA


async def test_nothing_is_booked_on_devices_and_nothing_written_into_the_pod() -> None:
    bench = harness()
    await plugin_agent(bench, "T4", 1)
    assert await bench.run(wants(), ["n"]) == "n"
    assert bench.kube.bindings == [("p", "n", {})]
    assert bench.store.snapshot().sharers.sum() == 0
    assert bench.store.bookings("n") == ()


async def test_two_binds_for_the_last_replica_leave_one_winner() -> None:
    bench = harness()
    await plugin_agent(bench, "T4", 1)
    pods = [wants("a"), wants("b")]
    for each in pods:
        bench.kube.add(each)
        assert (await bench.filter(each, ["n"]))["NodeNames"] == ["n"]
    answers = [await bench.bind(each, "n") for each in pods]
    assert answers[0] == ""
    assert "no free replica" in answers[1]


async def test_what_kubelet_gave_out_counts_and_is_not_counted_twice() -> None:
    bench = harness()
    made = await plugin_agent(bench, "T4", 4, used=2)
    assert await bench.run(wants("a", 2), ["n"]) == "n"
    await made.tell()
    assert await bench.run(wants("b", 2), ["n"]) == "n", "the two in use may be those of pod a"
    assert await refused(bench) == NO_REPLICA


async def test_replicas_come_back_with_the_end_of_their_pod() -> None:
    bench = harness()
    await plugin_agent(bench, "T4", 1)
    first = wants("first")
    assert await bench.run(first, ["n"]) == "n"
    assert await refused(bench) == NO_REPLICA
    bench.delete(first)
    assert await bench.run(wants("second"), ["n"]) == "n"


async def test_pods_that_others_bound_count_even_with_conditions_that_nobody_understands() -> None:
    bench = harness()
    await plugin_agent(bench, "T4", 1)
    odd = wants("odd", gpu_architecture="no-such-thing")
    there = Pod(odd.metadata, PodSpec(node_name="n", containers=odd.spec.containers))
    bench.store.set_pod(observe_pod(there, PREFIX))
    assert await refused(bench) == NO_REPLICA


async def test_type_of_the_devices_decides() -> None:
    bench = harness()
    await plugin_agent(bench, "T4", 1, node="t4")
    await plugin_agent(bench, "L40S", 1, node="l40s")
    answer = await bench.filter(wants(gpu_architecture=">=ada"), ["t4", "l40s"])
    assert answer["NodeNames"] == ["l40s"]
    assert answer["FailedAndUnresolvableNodes"] == {"t4": "too few GPUs meet the pod's conditions"}


async def test_time_sliced_replicas_are_shares_of_few_devices() -> None:
    bench = harness()
    await plugin_agent(bench, "T4", 1, resource="nvidia.com/gpu.shared", replicas=4)
    pods = [wants(f"p{number}", resource="nvidia.com/gpu.shared") for number in range(5)]
    assert [await bench.run(each, ["n"]) for each in pods] == ["n"] * 4 + [""]


async def test_the_node_that_is_measured_to_be_busy_comes_last() -> None:
    bench = harness(load_average_s=0.1)
    hot, cool = await plugin_agent(bench, "T4", 1, node="hot"), await plugin_agent(bench, "T4", 1, node="cool")
    hot.node.set_utilisation(hot.uuids[0], 0.9)
    for made in (hot, cool):
        await made.later(5)
    assert (await bench.prioritize(wants(), ["hot", "cool"]))["cool"] == 10


async def test_a_node_with_the_plugin_and_without_an_agent_waits_for_a_report() -> None:
    bench = harness(reports_wait_s=0)
    capacity = {"cpu": "8", "memory": "32Gi", GPU: "4"}
    facts = observe_node(Node(metadata=Metadata(name="n"), status=NodeStatus(capacity, capacity)), PREFIX)
    assert facts.has_plugin
    bench.store.set_node(facts)
    bench.clock.advance(1)
    assert await refused(bench) == {"n": "no fresh report from the node's GPU agent"}


async def test_a_freed_replica_wakes_who_waits() -> None:
    bench = harness()
    woken: list[str] = []
    bench.store.on_growth = lambda node, _by_pod_end: woken.append(node)
    held = device("GPU-0", owner=Owner.PLUGIN)
    for used in (1, 1, 0):
        plugin = (PluginResource(resource=GPU, replicas=1, used=used, uuids=("GPU-0",)),)
        bench.store.set_node(node_facts("n"))
        bench.store.apply_report(report("n", held, plugin=plugin), bench.clock.now())
    assert woken == ["n", "n"], "the first report, and the replica"


async def test_a_device_that_both_sides_hand_out_takes_no_pod_of_either() -> None:
    bench = harness({"n": [device("GPU-0")]})
    assert await bench.run(pod("ours", gpu_memory=1000), ["n"]) == "n"
    plugin = (PluginResource(resource=GPU, replicas=1, used=0, uuids=("GPU-0",)),)
    await bench.report(report("n", device("GPU-0", owner=Owner.PLUGIN), plugin=plugin))
    assert await refused(bench) == {"n": "too few healthy GPUs"}
    assert (await bench.filter(pod("more", gpu_memory=1), ["n"]))["NodeNames"] == []
    bench.delete(pod("ours"))
    assert await bench.run(wants(), ["n"]) == "n", "with our pod gone the device is the plugin's alone"


@pytest.mark.parametrize(
    ("plugin", "field"),
    [
        (PluginResource(resource="", replicas=1, used=0), "$.plugin[0].resource"),
        (PluginResource(resource=GPU, replicas=-1, used=0), "$.plugin[0].replicas"),
        (PluginResource(resource=GPU, replicas=1, used=2**40), "$.plugin[0].used"),
        (PluginResource(resource=GPU, replicas=1, used=0, uuids=tuple(map(str, range(129)))), "$.plugin[0].uuids"),
    ],
)
async def test_a_report_of_the_plugin_that_cannot_be_meant_is_refused(plugin: PluginResource, field: str) -> None:
    bench = harness({"n": [device()]})
    answer = await bench.report(report("n", device(), plugin=(plugin,)))
    assert (answer.status_code, answer.json()["field"]) == (422, field)


async def test_resources_of_a_fleet_are_bounded() -> None:
    bench = harness({"n": [device()]})
    for first in (0, 100, 200):
        names = [f"nvidia.com/mig-{number}" for number in range(first, first + 100)]
        plugin = tuple(PluginResource(resource=name, replicas=1, used=0) for name in names)
        answer = await bench.report(report("n", device(), plugin=plugin))
    assert (answer.status_code, answer.json()["field"]) == (422, "$.plugin")


def test_replicas_are_spread_over_the_devices_that_are_there() -> None:
    resource = PluginResource(resource=GPU, replicas=7, used=3, uuids=("a", "b", "gone"))
    found = replicas_of(report("n", plugin=(resource,)), ("a", "b"), {GPU: 5})
    assert found == {"a": Replicas(GPU, 3, 3), "b": Replicas(GPU, 2, 2)}


def test_a_pod_is_expected_to_load_the_devices_evenly() -> None:
    replicas = {"a": Replicas(GPU, 2, 0), "b": Replicas(GPU, 2, 0), "c": Replicas("other", 9, 0)}
    assert expected_load(replicas, (PluginAsk(GPU, 1),)) == [("a", 250), ("b", 250)]


async def test_a_pod_bound_just_now_counts_as_load_before_it_is_measured() -> None:
    bench = harness()
    await plugin_agent(bench, "T4", 2)
    assert await bench.run(wants(), ["n"]) == "n"
    assert bench.store.snapshot().settling_milli[:2, 0].tolist() == [500, 500]
    bench.clock.advance(31)
    bench.store.expire(bench.clock.now())
    assert bench.store.snapshot().settling_milli.sum() == 0


async def test_an_eviction_is_in_vain_where_the_devices_are_of_another_type() -> None:
    bench = harness()
    await plugin_agent(bench, "T4", 1, node="t4", used=1)
    await plugin_agent(bench, "L4", 1, node="l4", used=1)
    victims = {name: {"Pods": [{"UID": f"uid-{name}"}], "NumPDBViolations": 0} for name in ("t4", "l4")}
    body = {
        "Pod": as_json(wants(gpu_architecture="ada")),
        "NodeNameToVictims": None,
        "NodeNameToMetaVictims": victims,
    }
    answer = (await bench.post("/v1/preempt", body)).json()
    assert answer["NodeNameToMetaVictims"].keys() == {"l4"}


async def test_the_fleet_shows_what_the_plugin_offers() -> None:
    bench = harness()
    await plugin_agent(bench, "T4", 4, used=1)
    assert await bench.run(wants("p", 2), ["n"]) == "n"
    [node] = (await bench.http.get("/v1/fleet")).json()["nodes"]
    assert node["plugin"] == [{"resource": GPU, "replicas": 4, "taken": 2, "free": 2}]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("pod"), st.integers(0, 5), st.integers(1, 3)),
        st.tuples(st.just("gone"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("report"), st.integers(0, 6), st.integers(1, 4)),
    ),
    max_size=20,
)


@given(steps)
def test_taken_is_the_greater_of_what_kubelet_gave_out_and_what_bound_pods_ask(moves) -> None:
    store, used, asked, devices = ClusterStore(Settings()), 0, {}, 2
    store.set_node(node_facts("n"))

    def tell() -> None:
        uuids = tuple(f"GPU-{number}" for number in range(devices))
        plugin = (PluginResource(resource=GPU, replicas=8, used=used, uuids=uuids),)
        held = [device(uuid, owner=Owner.PLUGIN) for uuid in uuids]
        store.apply_report(report("n", *held, plugin=plugin), 1000.0)

    tell()
    for round_, (move, number, count) in enumerate(moves):
        uid = f"uid-{number}-{round_}"
        if move == "pod" and number not in asked:
            asked[number] = uid, count
            seen = ObservedPod(identity("p", uid=uid), "n", plugin=(PluginAsk(GPU, count),))
            store.set_pod(seen)
            store.set_pod(seen)
        elif move == "gone" and number in asked:
            store.release(asked.pop(number)[0])
        elif move == "report":
            used, devices = number, count
            tell()
        fleet = store.snapshot()
        assert fleet.replicas_taken.sum() == max(used, sum(each for _, each in asked.values()))
        assert fleet.replicas.sum() == 8
        assert (fleet.resource >= 0).sum() == devices


class TestCordon:
    def cordoned(self, bench: Harness, text: str) -> None:
        marks = {PREFIX + "cordoned": text}
        amounts = {"cpu": "64", "memory": "256Gi"}
        node = Node(metadata=Metadata(name="n", annotations=marks), status=NodeStatus(amounts, amounts))
        bench.store.set_node(observe_node(node, PREFIX))

    async def test_the_annotation_takes_the_device_out_at_once_and_the_agent_hears_of_it(self) -> None:
        bench = harness()
        made: Agent = await agent(bench, count=2)
        first, second = made.uuids
        self.cordoned(bench, f" {first} , ")
        asked = pod("p", gpu_memory=100, annotations={PREFIX + "gpu-uuid": first})
        assert await refused(bench, asked) == {"n": "too few healthy GPUs"}
        assert await bench.run(pod("q", gpu_memory=100), ["n"]) == "n"
        assert await made.tell()
        assert [each.health for each in (await made.tell()).devices] == [Health.CORDONED, Health.HEALTHY]
        [node] = (await bench.http.get("/v1/fleet")).json()["nodes"]
        assert [each["state"] for each in node["devices"]] == ["out", "healthy"]
        assert second != first

    async def test_taking_the_annotation_away_brings_the_device_back(self) -> None:
        bench = harness()
        made: Agent = await agent(bench)
        woken: list[str] = []
        bench.store.on_growth = lambda node, _by_pod_end: woken.append(node)
        self.cordoned(bench, made.uuids[0])
        self.cordoned(bench, "")
        assert await refused(bench, pod("p", gpu_memory=100)) == {}
        assert woken == ["n"], "before the agent even heard of it"

    async def test_a_cordoned_gpu_takes_its_instances_along(self) -> None:
        bench = harness()
        made: Agent = await agent(bench, mig=("1g.10gb", "1g.10gb"))
        [whole] = [each for each in made.node.sweep().devices if each.mig_enabled]
        self.cordoned(bench, whole.uuid)
        asked = pod("p", gpu_memory=100, annotations={PREFIX + "gpu-sharing": "mig"})
        assert await refused(bench, asked) == {"n": "too few healthy GPUs"}

    async def test_names_of_devices_that_are_not_there_change_nothing(self) -> None:
        bench = harness()
        await agent(bench)
        self.cordoned(bench, "GPU-elsewhere,," + "," * 1000)
        assert await refused(bench, pod("p", gpu_memory=100)) == {}
