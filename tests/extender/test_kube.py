from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import msgspec
import pytest

from extender.errors import KubeRefused, KubeUnreachable, OutcomeUnknown, UnreadableAnswer
from extender.kube import (
    BindOutcome,
    BindStatus,
    EventNote,
    KubeClient,
    KubeOptions,
    Lease,
    TokenIdentity,
    lenient_context,
)
from extender.simulation.apiserver import SimulatedApiServer
from extender.simulation.apiserving import ServedApiServer
from extender.simulation.faults import Fault, FaultKind
from extender.transport import Limits

pytestmark = pytest.mark.anyio
QUICK = KubeOptions(limits=Limits(connect_timeout_s=2.0, read_timeout_s=0.5))
TOTALS = {"tangram.dev/gpu-memory": "81920"}


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
def served():
    with ServedApiServer(SimulatedApiServer(), bookmark_s=0.05) as running:
        yield running


@pytest.fixture
def server(served: ServedApiServer):
    served.server.faults.clear()
    return served.server


@pytest.fixture
async def kube(served: ServedApiServer):
    client = KubeClient.from_url(served.url, options=QUICK)
    yield client
    await client.close()


def new_pod(server: SimulatedApiServer) -> tuple[str, str]:
    """Create a pod of a name of its own; return name and UID."""
    body = server.create(
        "pods", "ml", {"metadata": {"generateName": "train-", "annotations": {"mine": "1"}}, "spec": {}}
    )
    metadata = msgspec.json.decode(body)["metadata"]
    return metadata["name"], metadata["uid"]


@asynccontextmanager
async def answering(status: int, body: bytes) -> AsyncIterator[KubeClient]:
    """Give a client of a server that answers everything alike."""
    head = b"HTTP/1.1 %d X\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (status, len(body))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)
        writer.write(head + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        client = KubeClient.from_url(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", options=QUICK)
        yield client
        await client.close()


class TestPods:
    async def test_a_pod_is_read_as_it_is_now(self, kube: KubeClient, server: SimulatedApiServer):
        name, uid = new_pod(server)
        pod = await kube.get_pod("ml", name)
        assert pod is not None
        assert (pod.metadata.uid, pod.status.phase) == (uid, "Pending")

    async def test_a_pod_that_is_not_there_is_none(self, kube: KubeClient):
        assert await kube.get_pod("ml", "nobody") is None

    async def test_a_name_cannot_leave_its_place_in_the_path(self, kube: KubeClient, server: SimulatedApiServer):
        name, _ = new_pod(server)
        assert await kube.get_pod("ml", "../../nodes") is None
        assert await kube.get_pod("ml", f"../pods/{name}") is None
        for namespace, other in (("..", name), ("ml", ".."), (".", name), ("ml", ".")):
            assert await kube.get_pod(namespace, other) is None

    @pytest.mark.parametrize(
        "body",
        [
            pytest.param(b"{}", id="nothing"),
            pytest.param(b'{"metadata":{"namespace":"ml","name":"p"}}', id="no UID"),
            pytest.param(b'{"metadata":{"namespace":"ml","name":"other","uid":"u"}}', id="another pod"),
            pytest.param(b'{"kind":"Status","status":"Success"}', id="status"),
        ],
    )
    async def test_an_answer_about_something_else_is_no_pod(self, body: bytes):
        """From a pod of another UID follows that the one asked for is gone, and its booking with it."""
        async with answering(200, body) as kube:
            with pytest.raises(UnreadableAnswer):
                await kube.get_pod("ml", "p")

    async def test_another_refusal_is_raised_with_its_words(self, kube: KubeClient, server: SimulatedApiServer):
        server.faults.add(Fault("get", "pods", FaultKind.REFUSE, status=403))
        with pytest.raises(KubeRefused, match="403: simulated fault"):
            await kube.get_pod("ml", "train-0")

    async def test_a_read_whose_connection_broke_is_tried_once_more(self, kube: KubeClient, server: SimulatedApiServer):
        name, _ = new_pod(server)
        before = server.faults.calls("get", "pods")
        server.faults.add(Fault("get", "pods", FaultKind.DROP))
        assert await kube.get_pod("ml", name) is not None
        assert server.faults.calls("get", "pods") - before == 2

    async def test_a_server_that_is_silent_is_given_up_after_the_timeout(
        self, kube: KubeClient, server: SimulatedApiServer
    ):
        server.faults.add(Fault("get", "pods", FaultKind.SILENCE), times=None)
        with pytest.raises(OutcomeUnknown):
            await kube.get_pod("ml", "train-0")


class TestBind:
    async def test_a_binding_sets_node_and_annotations_in_one_write(self, kube: KubeClient, server: SimulatedApiServer):
        name, uid = new_pod(server)
        before = server.version
        outcome = await kube.bind("ml", name, uid, "gpu-a", {"tangram.dev/allocation": "{}"})
        pod = await kube.get_pod("ml", name)
        assert outcome == BindOutcome(BindStatus.BOUND)
        assert pod is not None
        assert pod.spec.node_name == "gpu-a"
        assert pod.metadata.annotations == {"mine": "1", "tangram.dev/allocation": "{}"}
        assert server.version == before + 1

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 413, 422, 429])
    async def test_a_4xx_answer_is_a_definite_no(self, kube: KubeClient, server: SimulatedApiServer, status: int):
        name, uid = new_pod(server)
        server.faults.add(Fault("bind", "pods", FaultKind.REFUSE, status=status))
        outcome = await kube.bind("ml", name, uid, "gpu-a", {})
        assert (outcome.status, outcome.code) == (BindStatus.REFUSED, status)

    @pytest.mark.parametrize("status", [408, 500, 502, 503, 504])
    async def test_a_5xx_answer_settles_nothing(self, kube: KubeClient, server: SimulatedApiServer, status: int):
        name, uid = new_pod(server)
        server.faults.add(Fault("bind", "pods", FaultKind.REFUSE, status=status))
        outcome = await kube.bind("ml", name, uid, "gpu-a", {})
        assert (outcome.status, outcome.code) == (BindStatus.UNKNOWN, status)

    async def test_another_uid_is_refused_with_409(self, kube: KubeClient, server: SimulatedApiServer):
        name, _ = new_pod(server)
        outcome = await kube.bind("ml", name, "another-uid", "gpu-a", {})
        assert (outcome.status, outcome.code) == (BindStatus.REFUSED, 409)
        assert "UID in precondition" in outcome.message

    async def test_a_pod_that_is_gone_is_refused_with_404(self, kube: KubeClient):
        outcome = await kube.bind("ml", "nobody", "u1", "gpu-a", {})
        assert (outcome.status, outcome.code) == (BindStatus.REFUSED, 404)

    async def test_an_answer_lost_after_the_write_is_unknown_and_nothing_is_sent_twice(
        self, kube: KubeClient, server: SimulatedApiServer
    ):
        name, uid = new_pod(server)
        before = server.faults.calls("bind", "pods")
        server.faults.add(Fault("bind", "pods", FaultKind.LOSE_ANSWER))
        outcome = await kube.bind("ml", name, uid, "gpu-a", {})
        pod = await kube.get_pod("ml", name)
        assert outcome.status is BindStatus.UNKNOWN
        assert server.faults.calls("bind", "pods") - before == 1
        assert pod is not None
        assert pod.spec.node_name == "gpu-a"

    @pytest.mark.parametrize("kind", [FaultKind.DROP, FaultKind.SILENCE])
    async def test_no_answer_is_unknown(self, kube: KubeClient, server: SimulatedApiServer, kind: FaultKind):
        name, uid = new_pod(server)
        server.faults.add(Fault("bind", "pods", kind))
        assert (await kube.bind("ml", name, uid, "gpu-a", {})).status is BindStatus.UNKNOWN

    @pytest.mark.parametrize(
        ("status", "body"),
        [
            pytest.param(200, b"<html>please log in</html>", id="page"),
            pytest.param(200, b'{"kind":"Status","status":"Failure","code":409}', id="failure"),
            pytest.param(202, b"{}", id="nothing said"),
            pytest.param(204, b"", id="empty"),
            pytest.param(201, b'{"x":' + b"[" * 6000, id="deep"),
        ],
    )
    async def test_a_success_that_is_no_status_of_success_settles_nothing(self, status: int, body: bytes):
        async with answering(status, body) as kube:
            assert (await kube.bind("ml", "p", "u", "gpu-a", {})).status is BindStatus.UNKNOWN

    async def test_a_refusal_whose_words_cannot_be_read_is_a_refusal(self):
        async with answering(409, b'{"x":' + b"[" * 6000) as kube:
            assert (await kube.bind("ml", "p", "u", "gpu-a", {})).status is BindStatus.REFUSED

    async def test_nothing_is_sent_after_the_deadline(self, kube: KubeClient, server: SimulatedApiServer):
        name, uid = new_pod(server)
        before = server.faults.calls("bind", "pods")
        outcome = await kube.bind("ml", name, uid, "gpu-a", {}, deadline_s=time.monotonic() - 0.001)
        assert (outcome.status, outcome.code) == (BindStatus.REFUSED, None)
        assert server.faults.calls("bind", "pods") == before

    async def test_the_deadline_shortens_the_wait_for_an_answer(
        self, served: ServedApiServer, server: SimulatedApiServer
    ):
        name, uid = new_pod(server)
        server.faults.add(Fault("bind", "pods", FaultKind.SILENCE))
        patient = KubeClient.from_url(served.url, options=KubeOptions(limits=Limits(read_timeout_s=30.0)))
        began = time.monotonic()
        outcome = await patient.bind("ml", name, uid, "gpu-a", {}, deadline_s=began + 0.3)
        assert outcome.status is BindStatus.UNKNOWN
        assert time.monotonic() - began < 5.0
        await patient.close()

    async def test_no_connection_is_a_definite_no(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        nowhere = KubeClient.from_url(f"http://127.0.0.1:{port}", options=QUICK)
        outcome = await nowhere.bind("ml", "train-0", "u1", "gpu-a", {})
        assert (outcome.status, outcome.code) == (BindStatus.REFUSED, None)
        with pytest.raises(KubeUnreachable):
            await nowhere.get_pod("ml", "train-0")
        await nowhere.close()


class TestNodes:
    async def test_totals_go_into_capacity_and_allocatable_beside_what_is_there(
        self, kube: KubeClient, server: SimulatedApiServer
    ):
        server.create("nodes", "", {"metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "8"}}})
        await kube.patch_node_status("n1", TOTALS)
        node = msgspec.json.decode(server.get("nodes", "", "n1"))
        assert node["status"] == {"capacity": {"cpu": "8"} | TOTALS, "allocatable": TOTALS}

    async def test_none_removes_a_total(self, kube: KubeClient, server: SimulatedApiServer):
        server.create("nodes", "", {"metadata": {"name": "n2"}, "status": {"capacity": TOTALS, "allocatable": TOTALS}})
        await kube.patch_node_status("n2", dict.fromkeys(TOTALS))
        assert msgspec.json.decode(server.get("nodes", "", "n2"))["status"] == {"capacity": {}, "allocatable": {}}

    async def test_an_annotation_is_set_and_removed(self, kube: KubeClient, server: SimulatedApiServer):
        server.create("nodes", "", {"metadata": {"name": "n3"}})
        await kube.patch_node_annotation("n3", "tangram.dev/wake", "7")
        assert msgspec.json.decode(server.get("nodes", "", "n3"))["metadata"]["annotations"] == {
            "tangram.dev/wake": "7"
        }
        await kube.patch_node_annotation("n3", "tangram.dev/wake", None)
        assert msgspec.json.decode(server.get("nodes", "", "n3"))["metadata"]["annotations"] == {}

    async def test_a_node_that_is_gone_is_refused_with_404(self, kube: KubeClient):
        with pytest.raises(KubeRefused) as caught:
            await kube.patch_node_annotation("nobody", "a", "b")
        assert caught.value.status == 404


class TestEventsTokensLeases:
    async def test_an_event_is_about_its_object_and_cut_to_what_the_server_takes(
        self, served: ServedApiServer, server: SimulatedApiServer
    ):
        moment = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
        from kubernetes import client

        configuration = client.Configuration()
        configuration.host = served.url
        kube = KubeClient(configuration, QUICK, now=lambda: moment)
        await kube.create_event(EventNote("Node", "", "gpu-a", "u1", "DeviceLost", "x" * 2000))
        await kube.close()
        (found,) = [
            item
            for item in msgspec.json.decode(server.list_page("events", "default", 0, ""))["items"]
            if item["reason"] == "DeviceLost"
        ]
        assert found["involvedObject"]["name"] == "gpu-a"
        assert found["lastTimestamp"] == "2030-01-02T03:04:05Z"
        assert len(found["message"]) == 1024

    async def test_a_token_speaks_for_its_identity_within_its_audiences(
        self, kube: KubeClient, server: SimulatedApiServer
    ):
        identity = TokenIdentity(
            "system:serviceaccount:tangram:agent",
            "u1",
            ("system:authenticated",),
            ("tangram",),
            {"authentication.kubernetes.io/node-name": ("gpu-a",)},
        )
        server.admit_token("good", identity)
        assert await kube.token_review("good", ["tangram"]) == identity
        assert await kube.token_review("good", ["another"]) is None
        assert await kube.token_review("forged", ["tangram"]) is None

    async def test_a_lease_is_created_read_and_renewed_only_from_its_newest_version(
        self, kube: KubeClient, server: SimulatedApiServer
    ):
        lease = Lease("tangram", "pair", "a", 15, "2030-01-01T00:00:00.000000Z", "2030-01-01T00:00:00.000000Z", 0)
        assert await kube.get_lease("tangram", "pair") is None
        created = await kube.create_lease(lease)
        assert await kube.get_lease("tangram", "pair") == created
        assert created.resource_version
        with pytest.raises(KubeRefused, match="409"):
            await kube.create_lease(lease)
        renewed = await kube.update_lease(
            Lease("tangram", "pair", "b", 15, "", "2030-01-01T00:00:05.000000Z", 1, created.resource_version)
        )
        assert renewed.holder == "b"
        with pytest.raises(KubeRefused, match="409"):
            await kube.update_lease(created)


class TestTransport:
    async def test_an_answer_above_the_limit_is_refused(self, served: ServedApiServer, server: SimulatedApiServer):
        server.create("pods", "big", {"metadata": {"name": "p", "annotations": {"x": "y" * 20_000}}, "spec": {}})
        kube = KubeClient.from_url(served.url, options=KubeOptions(limits=Limits(answer_bytes=10_000)))
        with pytest.raises(UnreadableAnswer):
            await kube.get_pod("big", "p")
        await kube.close()

    async def test_a_watch_event_above_the_limit_is_refused(self, served: ServedApiServer, server: SimulatedApiServer):
        server.create("pods", "big", {"metadata": {"name": "w", "annotations": {"x": "y" * 200_000}}, "spec": {}})
        kube = KubeClient.from_url(served.url, options=KubeOptions(limits=Limits(line_bytes=10_000)))
        stream = kube.open_watch("/api/v1/namespaces/big/pods", "", 5, 5.0)
        with pytest.raises(UnreadableAnswer):
            list(stream)
        stream.close()
        await kube.close()

    async def test_the_token_is_sent_as_a_bearer_token(self):
        asked = []
        with socket.create_server(("127.0.0.1", 0)) as listener:
            kube = KubeClient.from_url(f"http://127.0.0.1:{listener.getsockname()[1]}", "secret", QUICK)
            with pytest.raises(OutcomeUnknown):
                await kube.patch_node_annotation("n", "a", "b")
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(2.0)
                asked.append(connection.recv(4096))
        await kube.close()
        assert b"authorization: bearer secret" in asked[0].lower()

    async def test_the_lenient_context_still_verifies(self):
        context = lenient_context()
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert not context.verify_flags & ssl.VERIFY_X509_STRICT

    async def test_an_unfit_kubeconfig_is_named(self, tmp_path):
        with pytest.raises(KubeUnreachable, match="kubeconfig"):
            KubeClient.from_kubeconfig(tmp_path / "nothing")
