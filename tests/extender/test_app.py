"""The extender over HTTP: what kube-scheduler, agents and people get."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

import pytest

from extender.routes import raw
from tests.support.builders import A100_MIB, T4_MIB, device, devices, node_facts, pod, report
from tests.support.harness import Harness, as_json, harness

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def two_nodes(**settings: object) -> Harness:
    return harness({"a": [device("GPU-a")], "b": [device("GPU-b", name="Tesla T4", total_mib=T4_MIB)]}, **settings)


async def test_filter_prioritize_and_bind_place_a_pod() -> None:
    bench = two_nodes()
    small = pod("p", gpu_memory=8192)
    bench.kube.add(small)
    passed = (await bench.filter(small, ["a", "b"]))["NodeNames"]
    assert passed == ["a", "b"]
    scores = await bench.prioritize(small, passed)
    assert max(scores.values()) == 10
    assert list(scores.values()).count(10) == 1
    assert await bench.bind(small, "b") == ""
    assert [node for _, node, _ in bench.kube.bindings] == ["b"]


async def test_every_node_sent_is_in_exactly_one_list() -> None:
    bench = two_nodes()
    answer = await bench.filter(pod("p", gpu_memory=40_000), ["a", "b", "stranger"])
    assert answer["NodeNames"] == ["a"]
    assert answer["FailedNodes"] == {"stranger": "node is not known to Tangram"}
    assert answer["FailedAndUnresolvableNodes"] == {"b": "request is larger than any GPU of the node"}
    assert answer["Error"] == ""


async def test_prioritize_agrees_with_filter_whatever_changed_in_between() -> None:
    bench = two_nodes()
    asked = pod("p", gpu_memory=8192)
    passed = (await bench.filter(asked, ["b", "a"]))["NodeNames"]
    await bench.report(report("a", device("GPU-a", foreign_mib=A100_MIB)))
    compact = json.dumps({"Pod": as_json(asked), "Nodes": None, "NodeNames": passed}, separators=(",", ":"))
    answer = (await bench.post("/v1/prioritize", compact.encode())).json()
    assert {entry["Host"] for entry in answer} == {"a", "b"}


async def test_prioritize_without_a_filter_before_scores_the_nodes_itself() -> None:
    scores = await two_nodes().prioritize(pod("p", gpu_memory=40_000), ["b", "a", "stranger"])
    assert scores == {"a": 10, "b": 0, "stranger": 0}


async def test_a_pod_that_cannot_be_understood_gets_field_value_and_what_is_valid() -> None:
    answer = await two_nodes().filter(pod("p", gpu_memory="12x"), ["a"])
    assert "12x" in answer["Error"]
    assert "gpu-memory" in answer["Error"]


async def test_an_unknown_policy_is_an_error_that_lists_the_known_ones() -> None:
    asked = pod("p", gpu_memory=1024, annotations={"tangram.dev/gpu-policy": "bestest"})
    answer = await two_nodes().filter(asked, ["a"])
    assert "bestest" in answer["Error"]
    assert "binpack, latency, spread" in answer["Error"]


async def test_a_pod_without_gpus_passes_everywhere() -> None:
    answer = await two_nodes().filter(pod("web"), ["a", "b"])
    assert answer["NodeNames"] == ["a", "b"]


async def test_whole_nodes_are_refused_by_naming_the_setting() -> None:
    body = {"Pod": as_json(pod("p", gpu=1)), "Nodes": {"items": []}, "NodeNames": None}
    answer = (await two_nodes().post("/v1/filter", body)).json()
    assert "nodeCacheCapable" in answer["Error"]


async def test_before_the_lists_are_in_filter_says_what_is_missing() -> None:
    bench = harness({"a": [device()]}, listed=False)
    answer = await bench.filter(pod("p", gpu=1), ["a"])
    assert answer["Error"] == "not ready: waiting for the list of pods and nodes"
    ready = await bench.http.get("/readyz")
    assert (ready.status_code, ready.text) == (503, "not ready: waiting for the list of pods and nodes")
    assert (await bench.http.get("/healthz")).status_code == 200


async def test_decisions_wait_for_known_nodes_and_not_for_ever() -> None:
    bench = harness(reports_wait_s=60)
    bench.store.set_node(node_facts("a", totals=(("gpu", 100),)))
    assert "reports from 1 nodes" in (await bench.filter(pod("p", gpu=1), ["a"]))["Error"]
    assert (await bench.http.get("/readyz")).status_code == 200
    bench.clock.advance(61)
    answer = await bench.filter(pod("p", gpu=1), ["a"])
    assert answer["FailedNodes"] == {"a": "no fresh report from the node's GPU agent"}


async def test_a_cluster_without_agents_is_ready_and_places_nothing() -> None:
    bench = harness()
    bench.store.set_node(node_facts("a"))
    answer = await bench.filter(pod("p", gpu=1), ["a"])
    assert answer["FailedAndUnresolvableNodes"] == {"a": "node has no GPU"}


async def test_preempt_drops_nodes_where_an_eviction_would_not_help() -> None:
    bench = harness({"a": devices(1), "b": [device("GPU-b")]})
    low = [pod("low-a", gpu_memory=60_000, priority=1), pod("low-b", gpu_memory=60_000, priority=1)]
    for victim, name in zip(low, "ab", strict=True):
        bench.kube.add(victim)
        assert await bench.bind(victim, name) == ""
    body = {
        "Pod": as_json(pod("vip", gpu_memory=70_000, priority=9)),
        "NodeNameToVictims": None,
        "NodeNameToMetaVictims": {
            "a": {"Pods": [{"UID": "uid-low-a"}], "NumPDBViolations": 2},
            "b": {"Pods": [{"UID": "uid-somebody-without-gpu"}], "NumPDBViolations": 0},
        },
    }
    answer = (await bench.post("/v1/preempt", body)).json()
    assert answer == {"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "uid-low-a"}], "NumPDBViolations": 2}}}


async def test_preempt_fills_an_empty_victim_list() -> None:
    bench = harness({"a": devices(1)})
    for name, priority in (("low", 1), ("peer", 9)):
        occupant = pod(name, gpu_memory=40_000, priority=priority)
        bench.kube.add(occupant)
        assert await bench.bind(occupant, "a") == ""
    body = {
        "Pod": as_json(pod("vip", gpu_memory=41_000, priority=9)),
        "NodeNameToVictims": None,
        "NodeNameToMetaVictims": {"a": {"Pods": [], "NumPDBViolations": 0}},
    }
    answer = (await bench.post("/v1/preempt", body)).json()
    assert answer["NodeNameToMetaVictims"] == {"a": {"Pods": [{"UID": "uid-low"}], "NumPDBViolations": 0}}


async def test_a_preempt_that_cannot_be_read_answers_with_a_status() -> None:
    assert (await two_nodes().post("/v1/preempt", b"{")).status_code == 503


@pytest.mark.parametrize("path", ["/v1/filter", "/v1/prioritize", "/v1/preempt", "/v1/bind", "/v1/reports"])
async def test_a_body_beyond_the_limit_is_413(path: str) -> None:
    bench = two_nodes(max_scheduler_body_bytes=1024, max_report_body_bytes=1024)
    response = await bench.post(path, b" " * 1025)
    assert (response.status_code, response.text) == (413, "body of 1025 bytes, at most 1024 are read")


@pytest.mark.parametrize("path", ["/v1/filter", "/v1/reports"])
async def test_a_body_that_does_not_come_is_408(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw, "BODY_S", 0.01)
    told: list[MutableMapping[str, Any]] = []
    begun = iter([{"type": "http.request", "body": b"{", "more_body": True}])

    async def receive() -> MutableMapping[str, Any]:
        return next(begun, None) or await asyncio.get_running_loop().create_future()

    async def send(message: MutableMapping[str, Any]) -> None:
        told.append(message)

    await two_nodes().app({"type": "http", "method": "POST", "path": path, "headers": []}, receive, send)
    assert told[0]["status"] == 408
    assert (b"connection", b"close") in told[0]["headers"]


async def test_only_post_reaches_the_scheduler_routes() -> None:
    assert (await two_nodes().http.get("/v1/filter")).status_code == 405


async def test_a_report_is_answered_with_the_bookings_of_its_node() -> None:
    bench = two_nodes()
    asked = pod("p", gpu_memory=8192)
    bench.kube.add(asked)
    await bench.bind(asked, "a")
    answer = (await bench.report(report("a", device("GPU-a")))).json()
    assert [(entry["name"], entry["uuid"], entry["memory_mib"]) for entry in answer["bookings"]] == [
        ("p", "GPU-a", 8192)
    ]


async def test_a_report_that_cannot_be_understood_names_field_value_and_what_is_valid() -> None:
    bench = two_nodes()
    body = b'{"version":1,"node":"a","agent_run":"r","sequence":9999,"devices":[{"uuid":"GPU-a","total_mib":"many"}]}'
    response = await bench.report(body)
    assert response.status_code == 422
    assert response.json()["field"] == "$.devices[0].total_mib"
    assert response.json()["found"] == "str"
    assert response.json()["valid"] == "int"
    assert bench.store.snapshot().capacity_mib[0, 0] == A100_MIB


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        pytest.param({"version": 3}, "$.version", id="two versions on"),
        pytest.param({"node": ""}, "$.node", id="no node"),
        pytest.param({"devices": [{"uuid": "x", "total_mib": -1}]}, "$.devices[0].total_mib", id="negative memory"),
        pytest.param({"devices": [{"uuid": "x"}, {"uuid": "x"}]}, "$.devices", id="a device twice"),
        pytest.param({"devices": [{"uuid": str(n)} for n in range(129)]}, "$.devices", id="too many devices"),
        pytest.param({"devices": [{"uuid": "x", "health": "fine"}]}, "$.devices[0].health", id="no such health"),
        pytest.param({"devices": [{"uuid": "x", "numa_node": 40_000}]}, "$.devices[0].numa_node", id="numa"),
    ],
)
async def test_reports_out_of_range_are_422(changes: dict[str, object], field: str) -> None:
    body = {"version": 1, "node": "a", "agent_run": "r", "sequence": 1, **changes}
    response = await two_nodes().report(json.dumps(body).encode())
    assert (response.status_code, response.json()["field"]) == (422, field)


async def test_a_report_for_an_unknown_node_is_404() -> None:
    assert (await two_nodes().report(report("ghost", device()))).status_code == 404


async def test_explain_tells_the_last_decisions_and_what_the_pod_holds() -> None:
    bench = two_nodes()
    asked = pod("p", gpu_memory=8192)
    bench.kube.add(asked)
    await bench.filter(asked, ["a", "b", "stranger"])
    await bench.bind(asked, "a")
    answer = (await bench.http.get("/v1/explain/default/p")).json()
    assert answer["decisions"]["filter"]["reasons"] == {"UnknownNode": 1}
    assert answer["decisions"]["bind"]["devices"] == ["GPU-a"]
    assert answer["holding"]["node"] == "a"
    assert (await bench.http.get("/v1/explain/default/nobody")).status_code == 404


async def test_the_fleet_shows_devices_with_shares_load_and_health() -> None:
    bench = harness({"a": [device("GPU-a", utilisation=0.25)]})
    asked = pod("p", gpu_memory=8192)
    bench.kube.add(asked)
    await bench.bind(asked, "a")
    [node] = (await bench.http.get("/v1/fleet")).json()["nodes"]
    [gpu] = node["devices"]
    assert (gpu["product"], gpu["load"], gpu["health"], gpu["booked_mib"]) == ("A100-SXM4-80GB", 0.25, "healthy", 8192)
    assert [share["pod"] for share in gpu["shares"]] == ["p"]


async def test_metrics_count_answers_and_show_the_state() -> None:
    bench = two_nodes()
    await bench.filter(pod("p", gpu=1), ["a"])
    text = (await bench.http.get("/metrics")).text
    assert 'tangram_extender_requests_total{outcome="ok",verb="filter"} 1.0' in text
    assert 'tangram_extender_nodes{state="fresh"} 2.0' in text


async def test_decisions_are_listed_newest_first() -> None:
    bench = two_nodes()
    await bench.filter(pod("one", gpu=1), ["a"])
    await bench.filter(pod("two", gpu=1), ["a"])
    answer = (await bench.http.get("/v1/decisions", params={"limit": 1})).json()
    assert [(entry["name"], entry["sequence"]) for entry in answer["decisions"]] == [("two", 2)]
