"""Pod names are for viewers: no route of the people's listener says one to anybody else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator

import httpx2
import msgspec
import pytest

from extender.app import Extender, Surroundings, create_app
from extender.objects import Condition, Pod, PodStatus
from extender.observing import identity
from extender.pages.live import LiveView
from extender.routes.raw import Headers
from extender.settings import Settings
from extender.viewers import HIDDEN, words_without_names
from node_agent.report import Usage
from tests.support.builders import bound, device, node_facts, pod, report
from tests.support.clock import ManualClock
from tests.support.kube import FakeKube

pytestmark = pytest.mark.anyio

TOKEN = {"Authorization": "Bearer viewer"}
SECRETS = ("secret-namespace", "secret-runs", "secret-waits", "secret-other", "secret-container", "uid-secret")
EVERY_PATH = {
    "/": "/",
    "/assets/{name}": "/assets/live.js",
    "/v1/stream": "",  # read apart below: it never ends
    "/v1/live/nodes/{name}": "/v1/live/nodes/a",
    "/v1/fleet": "/v1/fleet",
    "/v1/decisions": "/v1/decisions",
    "/v1/explain/{namespace}/{pod}": "/v1/explain/secret-namespace/secret-waits",
    "/v1/why-not/{node}/{namespace}/{pod}": "/v1/why-not/a/secret-namespace/secret-waits",
    "/v1/history/{namespace}/{pod}": "/v1/history/secret-namespace/secret-waits",
    "/v1/audit": "/v1/audit",
    "/v1/usage": "/v1/usage?idle_after_s=0",
    "/v1/devices": "/v1/devices",
    "/v1/policies": "/v1/policies",
    "/v1/mix": "/v1/mix",
    "/healthz": "/healthz",
    "/readyz": "/readyz",
    "/metrics": "/metrics",
    "/openapi.json": "/openapi.json",
}
ABOUT_ONE_POD = [
    "/v1/explain/secret-namespace/secret-waits",
    "/v1/why-not/a/secret-namespace/secret-waits",
    "/v1/history/secret-namespace/secret-waits",
    "/v1/audit",
    "/v1/mix",
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def viewers(headers: Headers) -> bool:
    return headers.get(b"authorization") == b"Bearer viewer"


@pytest.fixture
async def app() -> Extender:
    """Return an extender with a pod that runs, one that waits and one whose bind failed, all in one namespace."""
    clock, kube = ManualClock(), FakeKube()
    app = create_app(Settings(), Surroundings(kube, None, clock, viewers=viewers))
    store = app.services.store
    app.node_handler()._on_node(node_facts("a"))
    app.node_handler().on_synced()
    app.pod_handler().on_synced()
    usage = Usage(pod_uid="uid-secret-runs", uuid="GPU-a", memory_mib=90_000, container="main", sm_ratio=0.0)
    store.apply_report(report("a", device("GPU-a"), usage=(usage,)), clock.now())
    store.set_pod(bound("secret-runs", "GPU-a", 8192, 300, node="a", pod=identity(secret_pod("secret-runs"))))
    words = '0/1 nodes are available: persistentvolumeclaim "data-secret-waits-0" not found.'
    status = PodStatus(conditions=(Condition("PodScheduled", "False", "Unschedulable", words),))
    waits = secret_pod("secret-waits", gpu=1, gpu_memory=200_000)
    app.pod_handler().on_set(msgspec.structs.replace(waits, status=status))
    kube.add(waits)
    async with _client(app) as http:
        for made in (waits, secret_pod("secret-other", gpu=1, gpu_memory=200_000)):
            await http.post("/v1/filter", json={"Pod": msgspec.to_builtins(made), "NodeNames": ["a"]})
            asked = {"PodName": made.metadata.name, "PodNamespace": "secret-namespace", "PodUID": "uid-secret-x"}
            await http.post("/v1/bind", json={**asked, "Node": "a"})
    await app.services.insight.usage.round()
    clock.advance(30)
    await app.services.insight.usage.round()
    return app


def secret_pod(name: str, **asked: int) -> Pod:
    made = pod(name, **asked)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, namespace="secret-namespace"))


def _client(app: Extender) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://extender")


async def first_update(app: Extender, *, is_viewer: bool) -> str:
    view: LiveView = app._view

    async def sees() -> bool:
        return is_viewer

    stream = view.updates(sees)
    try:
        return (await anext(stream)).decode()
    finally:
        await stream.aclose()  # type: ignore[attr-defined]
        await view.stop()


def leaked(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text]


async def test_every_route_of_the_application_is_looked_at_here(app: Extender) -> None:
    paths = {getattr(route, "path", repr(route)).replace(":path}", "}") for route in routes(app)}
    assert paths <= set(EVERY_PATH), "a new route: say here how it is asked, and see that it names no pods"


def routes(app: Extender) -> Iterator[object]:
    """Yield every route, those of included routers too."""
    for route in app.web.routes:
        included = getattr(route, "original_router", None)
        yield from [route] if included is None else included.routes


@pytest.mark.parametrize("path", sorted(set(EVERY_PATH.values()) - {""}))
@pytest.mark.parametrize("token", [{}, {"Authorization": "Bearer stranger"}], ids=["nobody", "stranger"])
async def test_who_is_no_viewer_reads_no_name(app: Extender, path: str, token: dict[str, str]) -> None:
    async with _client(app) as http:
        text = (await http.get(path, headers=token)).text
    # Hours by namespace are said to everybody, as in the metrics.
    assert set(leaked(text)) <= ({"secret-namespace"} if path.startswith(("/v1/usage", "/metrics")) else set())


async def test_stream_tells_names_to_viewers_only(app: Extender) -> None:
    assert leaked(await first_update(app, is_viewer=False)) == []
    assert {"secret-waits", "secret-other"} <= set(leaked(await first_update(app, is_viewer=True)))


async def test_devices_and_reasons_are_for_everybody(app: Extender) -> None:
    async with _client(app) as http:
        fleet, decisions = (await http.get("/v1/fleet")).json(), (await http.get("/v1/decisions")).json()
        details = (await http.get("/v1/live/nodes/a")).json()
    (share,) = fleet["nodes"][0]["devices"][0]["shares"]
    assert (share["memory_mib"], share["pod"], share["pod_uid"]) == (8192, HIDDEN, "")
    assert details["devices"][0]["shares"][0]["memory_mib"] == 8192
    refused = [each for each in decisions["decisions"] if each["verb"] == "filter"]
    assert all(each["reasons"] and each["name"] == HIDDEN for each in refused)
    update = json.loads((await first_update(app, is_viewer=False)).removeprefix("data: "))
    assert update["names"] is False
    assert update["waiting"][0]["why"] == 'persistentvolumeclaim "…" not found.'
    assert update["decisions"][-1]["reasons"]


async def test_trouble_is_for_everybody_and_whose_it_is_for_viewers(app: Extender) -> None:
    who = identity(secret_pod("secret-other"))
    app.services.store.set_pod(bound("secret-other", "GPU-a", 80_000, 900, node="a", pod=who, problem="is unreadable"))
    async with _client(app) as http:
        hidden, shown = (await http.get("/v1/fleet")).json(), (await http.get("/v1/fleet", headers=TOKEN)).json()
    assert hidden["nodes"][0]["problems"] == [f"pod {HIDDEN}: is unreadable"]
    assert shown["nodes"][0]["problems"] == ["pod secret-namespace/secret-other: is unreadable"]
    assert hidden["overbooked"] == [{"node": "a", "uuid": "GPU-a", "pods": [HIDDEN, HIDDEN]}]
    assert len(shown["overbooked"][0]["pods"]) == 2


@pytest.mark.parametrize("path", ["/v1/fleet", "/v1/decisions", "/v1/live/nodes/a", "/v1/usage?idle_after_s=0"])
async def test_viewers_read_names(app: Extender, path: str) -> None:
    async with _client(app) as http:
        assert "secret-" in (await http.get(path, headers=TOKEN)).text


@pytest.mark.parametrize("path", ABOUT_ONE_POD)
async def test_what_is_about_a_pod_is_for_viewers(app: Extender, path: str) -> None:
    async with _client(app) as http:
        refused, answered = await http.get(path), await http.get(path, headers=TOKEN)
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert "tangram-viewer" in refused.json()["error"]
    assert answered.status_code != 401


async def test_page_whose_token_ended_sees_no_names_any_more(app: Extender) -> None:
    answers = iter([True, False])

    async def sees() -> bool:
        return next(answers)

    stream: AsyncIterator[bytes] = app._view.updates(sees)
    told = [json.loads((await anext(stream)).removeprefix(b"data: "))["names"] for _ in range(3)]
    await stream.aclose()  # type: ignore[attr-defined]
    await app._view.stop()
    assert told == [True, False, False]  # And it is not asked again.


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("2 Insufficient cpu.", "2 Insufficient cpu."),
        ('claim "a" and "b".', 'claim "…" and "…".'),
    ],
)
def test_quoted_names_are_left_out_of_kube_schedulers_words(words: str, left: str) -> None:
    assert words_without_names(words) == left
