"""Cases W1 to W4: the wire (shared cases, from public bug reports)."""

from __future__ import annotations

import pytest

from tests.support.builders import device, devices, pod
from tests.support.harness import as_json, harness

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


BODIES = [
    pytest.param(b"", id="empty"),
    pytest.param(b"null", id="null"),
    pytest.param(b"[]", id="a list"),
    pytest.param(b"{", id="cut"),
    pytest.param(b"\xff\xfe", id="no text"),
    pytest.param(b'{"NodeNames":["n"]}', id="no pod"),
    pytest.param(b'{"Pod":null,"NodeNames":["n"]}', id="null pod"),
    pytest.param(b'{"Pod":{},"NodeNames":null,"Nodes":null}', id="null names"),
    pytest.param(b'{"Pod":{},"NodeNames":[1]}', id="names that are none"),
    pytest.param(b'{"Pod":{},"NodeNames":{}}', id="names in a map"),
    pytest.param(b"[" * 20_000, id="deep"),
]


@pytest.mark.parametrize("body", BODIES)
async def test_w1_a_body_that_makes_no_sense_is_an_error_in_a_200_and_books_nothing(body: bytes) -> None:
    bench = harness({"n": [device()]})
    for path in ("/v1/filter", "/v1/bind"):
        response = await bench.post(path, body)
        assert response.status_code == 200
        assert response.json()["Error"]
    prioritized = await bench.post("/v1/prioritize", body)
    assert prioritized.status_code == 200
    assert all(entry["Score"] == 0 for entry in prioritized.json())
    assert len(bench.store.ledger) == 0


async def test_w2_a_node_that_we_do_not_know_fails_and_the_others_are_judged() -> None:
    answer = await harness({"n": [device()]}).filter(pod("p", gpu=1), ["ghost", "n"])
    assert answer["NodeNames"] == ["n"]
    assert list(answer["FailedNodes"]) == ["ghost"]


async def test_w3_a_device_without_memory_is_skipped() -> None:
    bench = harness({"n": [device("GPU-0", total_mib=0), device("GPU-1")]})
    assert await bench.run(pod("p", gpu_memory=100), ["n"]) == "n"
    assert await bench.run(pod("q", gpu_compute=10), ["n"]) == "n"
    assert await bench.run(pod("whole", gpu=1), ["n"]) == ""
    fleet = bench.store.snapshot()
    assert fleet.sharers[:2, 0].tolist() == [0, 2]


async def test_w4_the_same_pod_filtered_twenty_times_and_bound_twice() -> None:
    bench = harness({"a": devices(2), "b": devices(2)})
    asked = pod("p", gpu_memory=1000)
    bench.kube.add(asked)
    answers = [await bench.filter(asked, ["a", "b"]) for _ in range(20)]
    assert all(answer == answers[0] for answer in answers)
    scores = [await bench.prioritize(asked, ["a", "b"]) for _ in range(20)]
    assert all(score == scores[0] for score in scores)
    assert await bench.bind(asked, "a") == ""
    assert await bench.bind(asked, "a") == ""
    assert len(bench.kube.bindings) == 1


async def test_a_node_name_sent_twice_is_answered_once() -> None:
    answer = await harness({"n": [device()]}).filter(pod("p", gpu=1), ["n", "n"])
    assert answer["NodeNames"] == ["n"]


async def test_names_with_quotes_and_other_scripts_survive() -> None:
    names = ['we"ird', "gpü-节点"]
    bench = harness({names[0]: [device()]})
    answer = await bench.filter(pod("p", gpu=1), names)
    assert answer["NodeNames"] == [names[0]]
    assert list(answer["FailedNodes"]) == [names[1]]


async def test_a_pod_with_unknown_fields_is_read() -> None:
    body = {"Pod": {**as_json(pod("p", gpu=1)), "future": {"x": 1}}, "Nodes": None, "NodeNames": ["n"], "New": 1}
    answer = (await harness({"n": [device()]}).post("/v1/filter", body)).json()
    assert answer["NodeNames"] == ["n"]
