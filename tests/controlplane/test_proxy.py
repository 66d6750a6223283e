"""Each fault of the proxy does what its name says, against the real API server."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import cast

import httpx2
import pytest
from kubernetes import client, config
from urllib3 import HTTPResponse
from urllib3.exceptions import HTTPError

from tests.controlplane.api import Api, ApiError, wait_for
from tests.controlplane.async_api import AsyncApi
from tests.controlplane.conftest import PlaneFactory
from tests.controlplane.faults import (
    delay,
    delay_answer,
    drop_answer,
    duplicate,
    gone,
    hold,
    hold_answer,
    refuse,
    status,
)
from tests.controlplane.plane import ControlPlane
from tests.controlplane.proxy import FaultProxy

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def plane(start_control_plane: PlaneFactory) -> ControlPlane:
    return start_control_plane()


@pytest.fixture
def proxy(plane: ControlPlane) -> Iterator[FaultProxy]:
    with FaultProxy(plane.endpoint()) as running:
        yield running


@pytest.fixture
def through(proxy: FaultProxy) -> Iterator[Api]:
    with Api(proxy.endpoint) as api:
        yield api


@pytest.fixture
def direct(plane: ControlPlane) -> Iterator[Api]:
    yield plane.api
    for each in plane.api.items(MAPS, labelSelector="test=proxy"):
        plane.api.delete(f"{MAPS}/{each['metadata']['name']}")


def config_map(name: str) -> dict[str, object]:
    return {"metadata": {"name": name, "labels": {"test": "proxy"}}}


def test_requests_pass_unchanged_and_are_remembered(proxy: FaultProxy, through: Api, direct: Api) -> None:
    through.create(MAPS, config_map("plain"))
    assert direct.exists(f"{MAPS}/plain")
    with pytest.raises(ApiError) as refusal:
        through.create(MAPS, config_map("plain"))
    assert refusal.value.reason == "AlreadyExists"
    assert [(each.method, each.path, each.status) for each in proxy.seen("POST")] == [
        ("POST", MAPS, 201),
        ("POST", MAPS, 409),
    ]


def test_https_towards_the_client_works_too(plane: ControlPlane, direct: Api) -> None:
    with FaultProxy(plane.endpoint(), plane.credentials) as proxy, Api(proxy.endpoint) as through:
        assert proxy.endpoint.url.startswith("https://")
        through.create(MAPS, config_map("secure"))
        assert direct.exists(f"{MAPS}/secure")


def test_drop_answer_loses_only_the_answer(proxy: FaultProxy, through: Api, direct: Api) -> None:
    rule = proxy.add(drop_answer(), "POST", "/configmaps$")
    with pytest.raises(httpx2.TransportError):
        through.create(MAPS, config_map("lost"))
    assert direct.exists(f"{MAPS}/lost")
    assert rule.hits == 1
    assert proxy.seen("POST")[0].status is None
    through.create(MAPS, config_map("next"))


def test_refuse_keeps_the_request_from_the_api_server(proxy: FaultProxy, through: Api, direct: Api) -> None:
    proxy.add(refuse(), "POST", times=2)
    for _ in range(2):
        with pytest.raises(httpx2.TransportError):
            through.create(MAPS, config_map("refused"))
    assert not direct.exists(f"{MAPS}/refused")
    through.create(MAPS, config_map("refused"))


def test_duplicate_sends_the_request_twice(proxy: FaultProxy, through: Api, direct: Api) -> None:
    proxy.add(duplicate(), "POST", "/configmaps$")
    with pytest.raises(ApiError) as refusal:
        through.create(MAPS, config_map("twice"))
    assert refusal.value.reason == "AlreadyExists"
    assert direct.exists(f"{MAPS}/twice")


def test_status_answers_in_the_place_of_the_api_server(proxy: FaultProxy, through: Api, direct: Api) -> None:
    proxy.add(status(503), "POST")
    with pytest.raises(ApiError) as refusal:
        through.create(MAPS, config_map("unavailable"))
    assert refusal.value.status == 503
    assert not direct.exists(f"{MAPS}/unavailable")


def test_delay_comes_before_the_api_server_acts(proxy: FaultProxy, through: Api, direct: Api) -> None:
    proxy.add(delay(0.4), "POST")
    with ThreadPoolExecutor(1) as pool:
        begun = time.monotonic()
        creation = pool.submit(through.create, MAPS, config_map("late"))
        assert not direct.exists(f"{MAPS}/late")
        creation.result(timeout=10)
    assert time.monotonic() - begun >= 0.4


def test_delay_answer_comes_after_the_api_server_acted(proxy: FaultProxy, through: Api, direct: Api) -> None:
    proxy.add(delay_answer(1.0), "POST")
    with ThreadPoolExecutor(1) as pool:
        creation = pool.submit(through.create, MAPS, config_map("slow"))
        wait_for("the object is there before the answer", lambda: direct.exists(f"{MAPS}/slow"))
        assert not creation.done()
        creation.result(timeout=10)


def test_held_request_reaches_the_api_server_when_released(proxy: FaultProxy, through: Api, direct: Api) -> None:
    rule = proxy.add(hold(), "POST")
    with ThreadPoolExecutor(1) as pool:
        creation = pool.submit(through.create, MAPS, config_map("held"))
        rule.wait_hit()
        assert not direct.exists(f"{MAPS}/held")
        rule.release()
        creation.result(timeout=10)
    assert direct.exists(f"{MAPS}/held")


def test_held_request_of_a_client_that_died_arrives_all_the_same(proxy: FaultProxy, direct: Api) -> None:
    rule = proxy.add(hold(), "POST")
    headers = {"Authorization": f"Bearer {proxy.endpoint.token}"}
    with pytest.raises(httpx2.ReadTimeout):
        httpx2.post(proxy.endpoint.url + MAPS, json=config_map("ghost"), headers=headers, timeout=0.3, trust_env=False)
    rule.release()
    assert wait_for("it arrives", lambda: direct.exists(f"{MAPS}/ghost"))


def test_held_answer_comes_when_released(proxy: FaultProxy, through: Api, direct: Api) -> None:
    rule = proxy.add(hold_answer(), "POST")
    with ThreadPoolExecutor(1) as pool:
        creation = pool.submit(through.create, MAPS, config_map("held-answer"))
        wait_for("it is there", lambda: direct.exists(f"{MAPS}/held-answer"))
        assert not creation.done()
        rule.release()
        creation.result(timeout=10)


def test_rules_take_requests_in_the_order_they_were_added(proxy: FaultProxy, through: Api, direct: Api) -> None:
    proxy.add(status(500), "POST", "/configmaps$")
    proxy.add(status(503), ".*", times=None)
    seen = []
    for _ in range(3):
        with pytest.raises(ApiError) as refusal:
            through.create(MAPS, config_map("ordered"))
        seen.append(refusal.value.status)
    proxy.clear()
    through.create(MAPS, config_map("ordered"))
    assert seen == [500, 503, 503]


def test_api_server_that_is_down_leaves_requests_unanswered(
    plane: ControlPlane, proxy: FaultProxy, through: Api
) -> None:
    plane.api_server.kill()
    with pytest.raises(httpx2.TransportError):
        through.get(MAPS)
    plane.api_server.start()
    plane.wait_ready()
    assert through.get(MAPS)["kind"] == "ConfigMapList"


def test_watch_of_the_official_client_streams_and_can_be_cut(
    plane: ControlPlane, proxy: FaultProxy, direct: Api, tmp_path: Path
) -> None:
    kubeconfig = plane.kubeconfig(tmp_path / "proxy.kubeconfig", proxy.endpoint)
    api_client = config.new_client_from_config(str(kubeconfig))  # type: ignore[no-untyped-call]
    names: list[str] = []
    ended = threading.Event()

    def follow() -> None:
        listing = client.CoreV1Api(api_client).list_namespaced_config_map
        answer = listing(
            "default", watch=True, label_selector="test=proxy", _preload_content=False, _request_timeout=20
        )
        stream = cast("HTTPResponse", answer)
        with suppress(HTTPError):
            names.extend(line.decode() for line in stream)
        ended.set()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    wait_for("the watch is open", lambda: proxy.seen(watch=True))
    direct.create(MAPS, config_map("watched"))
    wait_for("the event came through", lambda: any("watched" in line for line in names))
    assert proxy.cut_watches() == 1
    assert ended.wait(10)
    thread.join(10)
    assert proxy.cut_watches() == 0


def test_watch_ends_when_its_client_leaves(proxy: FaultProxy) -> None:
    headers = {"Authorization": f"Bearer {proxy.endpoint.token}"}
    with httpx2.stream("GET", f"{proxy.endpoint.url}{MAPS}?watch=1", headers=headers, trust_env=False) as stream:
        assert stream.status_code == 200
        wait_for("the watch is open", lambda: len(proxy.seen(watch=True)) == 1)
    wait_for("the watch is closed", lambda: proxy.cut_watches() == 0)


def test_gone_makes_a_watcher_list_again(proxy: FaultProxy, direct: Api) -> None:
    direct.create(MAPS, config_map("reborn"))
    rule = proxy.add(gone(), "GET", watch=True)

    async def first_two() -> list[str]:
        async with AsyncApi(proxy.endpoint) as api:
            events = api.follow(MAPS, field_selector="metadata.name=reborn")
            kinds = [(await anext(events))[0] for _ in range(2)]
            await events.aclose()
            return kinds

    assert asyncio.run(first_two()) == ["ADDED", "ADDED"]
    assert rule.hits == 1
    assert [each.is_watch for each in proxy.seen("GET")] == [False, True, False]
