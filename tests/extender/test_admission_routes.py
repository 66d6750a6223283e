"""The webhooks as the API server calls them: bytes in, bytes out, over ASGI."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.admission_review import MAX_WARNINGS, Opinion, encode_answer
from extender.admission_settings import AdmissionSettings
from extender.app import Surroundings, create_app
from extender.routes.admission import MUTATE_PATH, VALIDATE_PATH, admission_routes
from extender.routes.raw import FrontDoor
from extender.settings import Settings
from tests.support.kube import FakeKube
from tests.support.reviews import a_door, patched, raw_container, raw_pod, review

UID = "705ab4f5-6393-11e8-b7cc-42010a800002"
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Counter:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def __call__(self, webhook: str, outcome: str) -> None:
        self.seen.append((webhook, outcome))


async def nowhere(scope: object, receive: object, send: object) -> None:
    raise AssertionError("only the webhooks are called")


async def post(path: str, body: bytes, counter: Counter | None = None, **rules: Any) -> httpx2.Response:
    app = FrontDoor(admission_routes(a_door(**rules), counter or Counter()), nowhere)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://webhook") as client:
        return await client.post(f"{path}?timeout=10s", content=body, headers={"content-type": "application/json"})


def as_bytes(question: dict[str, Any]) -> bytes:
    return json.dumps(question).encode()


async def test_answer_carries_the_uid_of_the_question_and_a_patch():
    pod = raw_pod(raw_container(gpu="1"))
    counter = Counter()
    answer = await post(MUTATE_PATH, as_bytes(review(pod)), counter)
    assert answer.status_code == 200
    body = answer.json()
    assert (body["apiVersion"], body["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert body["response"]["uid"] == UID
    assert patched(pod, body["response"])["spec"]["runtimeClassName"] == "nvidia"
    assert counter.seen == [("mutate", "allowed")]


async def test_refusal_is_an_answer_with_status_and_reason():
    counter = Counter()
    answer = await post(VALIDATE_PATH, as_bytes(review(raw_pod(raw_container(gpu_compute="101")))), counter)
    response = answer.json()["response"]
    assert (answer.status_code, response["uid"], response["allowed"]) == (200, UID, False)
    assert response["status"]["code"] == 422
    assert response["status"]["reason"] == "Invalid"
    assert "found '101'" in response["status"]["message"]
    assert counter.seen == [("validate", "refused")]


async def test_namespace_is_that_of_the_request():
    question = review(raw_pod(raw_container()), namespace="batch")
    response = (await post(MUTATE_PATH, as_bytes(question), routed_namespaces=("batch",))).json()["response"]
    assert patched(raw_pod(raw_container()), response)["spec"]["schedulerName"] == "tangram-scheduler"


async def test_pod_without_gpu_gets_no_patch_at_all():
    response = (await post(MUTATE_PATH, as_bytes(review(raw_pod(raw_container()))))).json()["response"]
    assert response == {"uid": UID, "allowed": True}


@pytest.mark.parametrize(
    "about",
    [
        {"operation": "UPDATE"},
        {"operation": "DELETE", "object": None},
        {"subResource": "ephemeralcontainers", "operation": "UPDATE"},
        {"resource": {"group": "apps", "version": "v1", "resource": "deployments"}},
    ],
)
async def test_anything_but_a_new_pod_is_let_through(about: dict[str, Any]):
    question = review(raw_pod(raw_container(gpu_compute="101")), **about)
    for path in (MUTATE_PATH, VALIDATE_PATH):
        assert (await post(path, as_bytes(question))).json()["response"] == {"uid": UID, "allowed": True}


@pytest.mark.parametrize("pod", [None, [], "pod", {"spec": {"containers": "none"}}, {"metadata": {"labels": {"a": 1}}}])
async def test_object_that_is_no_pod_is_refused_with_the_uid(pod: object):
    answer = await post(VALIDATE_PATH, as_bytes(review(pod)))  # type: ignore[arg-type]
    response = answer.json()["response"]
    assert (answer.status_code, response["uid"], response["allowed"]) == (200, UID, False)
    assert response["status"]["code"] == 400
    assert "request.object is no pod" in response["status"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"{",
        b"\xff\xfe",
        b"[" * 10_000,
        b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}',
        b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":7}}',
        b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","request":{"uid":"x"}}',
        b'{"kind":"Pod","apiVersion":"admission.k8s.io/v1","request":{"uid":"x"}}',
    ],
)
async def test_malformed_question_is_denied_with_a_reason(body: bytes):
    counter = Counter()
    answer = await post(MUTATE_PATH, body, counter)
    response = answer.json()["response"]
    assert (answer.status_code, response["allowed"]) == (400, False)
    assert response["status"]["message"]
    assert counter.seen == [("mutate", "malformed")]


async def test_oversized_question_is_refused_before_it_is_read():
    answer = await post(MUTATE_PATH, as_bytes(review(raw_pod(raw_container("x" * 4096)))), max_body_bytes=2048)
    assert answer.status_code == 413
    assert "at most 2048" in answer.text


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.text(), lambda inner: st.lists(inner)).map(repr).map(str.encode)
)
async def test_no_body_makes_the_webhooks_fail(body: bytes):
    assert (await post(VALIDATE_PATH, body)).status_code in (200, 400)


def test_warnings_are_bounded_in_length_and_number():
    response = json.loads(encode_answer("u", Opinion(warnings=("w" * 1000,) * 50)))["response"]
    assert len(response["warnings"]) == MAX_WARNINGS
    assert {len(text) for text in response["warnings"]} == {256}


def test_long_list_of_problems_is_cut():
    response = json.loads(encode_answer("u", Opinion(problems=("p" * 1000,) * 50)))["response"]
    assert len(response["status"]["message"]) == 8192


def test_settings_of_the_door_come_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TANGRAM_ADMISSION__INJECTOR", "nri")
    monkeypatch.setenv("TANGRAM_ADMISSION__ROUTED_NAMESPACES", '["batch"]')
    assert Settings().admission == AdmissionSettings(injector="nri", routed_namespaces=("batch",))


@pytest.mark.parametrize(
    "rules", [{"scheduler_name": ""}, {"routed_taints": (" ",)}, {"injector": "magic"}, {"no_such": 1}]
)
def test_settings_that_say_nothing_are_refused(rules: dict[str, Any]):
    with pytest.raises(ValueError):
        AdmissionSettings(**rules)


async def test_extender_serves_its_webhooks_and_counts_them():
    app = create_app(Settings(), Surroundings(kube=FakeKube()))
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://extender") as client:
        question = as_bytes(review(raw_pod(raw_container(gpu="1"))))
        for path in (MUTATE_PATH, VALIDATE_PATH):
            assert (await client.post(path, content=question)).json()["response"]["allowed"]
    labels = {"webhook": "mutate", "outcome": "allowed"}
    assert app.services.metrics.registry.get_sample_value("tangram_extender_admissions_total", labels) == 1
