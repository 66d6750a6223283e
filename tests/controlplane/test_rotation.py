"""Leaf certificates change while a real kube-apiserver calls the webhooks: not one call fails.

Every call makes a connection of its own here, so each meets the leaf of that moment.
"""

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from extender.authorities import Subject, make_authority
from extender.certificates import IssuedLeaf, ServerTls
from tests.controlplane.api import Api, ApiError, Json, wait_for
from tests.controlplane.build import ensure
from tests.controlplane.conftest import PlaneFactory
from tests.controlplane.door import WebhookServer, install, mutating, render, validating, webhooks
from tests.controlplane.plane import ControlPlane
from tests.support.fleets import A100, fleet, gpu
from tests.support.reviews import a_door

PODS = "/api/v1/namespaces/default/pods"
CALLERS = 4
CALLS_BETWEEN = 40
LIFE = timedelta(days=12)  # renewed after eight of them


class Closing:
    """The application with every connection closed after one answer; remembers the loop that serves it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._loop = asyncio.get_running_loop()

        async def send_closing(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        await self._app(scope, receive, send_closing)

    def between_handshakes(self, act: Callable[[], bool]) -> bool:
        """Call on the serving loop, where the extender's own task lives, and return what it returned."""

        async def call() -> bool:
            return act()

        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(timeout=30)


class RotatingServer(WebhookServer):
    """The webhooks with a leaf of our own authority, whose clock a test sets forward."""

    def __init__(self, directory: Path) -> None:
        self._closing = Closing(webhooks(a_door(fleet(a=[gpu(A100)]))))
        super().__init__(self._closing, directory)
        self._now = datetime.now(UTC) - timedelta(days=11)
        authority = make_authority("webhooks", self._now - timedelta(days=60))
        self.authority = authority.certificate_pem
        subject = Subject("tangram", ("127.0.0.1",))
        self._tls = ServerTls(IssuedLeaf(authority, subject, directory / "leaf", lifetime=LIFE, now=lambda: self._now))

    def context(self) -> ssl.SSLContext:
        """Return the context whose leaf changes."""
        return self._tls.context

    def pass_days(self, days: int) -> bool:
        """Set the clock forward and return whether there is a new leaf, as the extender's own task would make one."""
        self._now += timedelta(days=days)
        return self._closing.between_handshakes(self._tls.reload)

    def serial(self) -> int:
        """Return the serial number of the leaf that a new connection is shown."""
        address = self.url("").removeprefix("https://").split(":")
        pem = ssl.get_server_certificate((address[0], int(address[1])))
        return x509.load_pem_x509_certificate(pem.encode()).serial_number


@pytest.fixture(scope="module")
def plane(start_control_plane: PlaneFactory) -> ControlPlane:
    plane = start_control_plane()
    runtime = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
    plane.api.create("/apis/node.k8s.io/v1/runtimeclasses", runtime)
    return plane


@pytest.fixture
def server(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RotatingServer]:
    _, conditions = render(ensure("helm"), tmp_path_factory.mktemp("chart"))
    with RotatingServer(tmp_path_factory.mktemp("webhook")) as server:
        asks = conditions["asksOurs"]
        install(plane.api, [mutating(server, asks, conditions["isRouted"]), validating(server, asks)])
        wait_for("the webhooks are in force", lambda: is_completed(plane.api))
        yield server


def gpu_pod() -> Json:
    limits = {"tangram.dev/gpu-memory": "4096"}
    container = {"name": "main", "image": "tangram.test/app:1", "resources": {"limits": limits}}
    return {"metadata": {"name": "load"}, "spec": {"containers": [container]}}


def is_completed(api: Api) -> bool:
    """Let the API server judge a pod as if it were created, and tell whether our webhook completed it."""
    try:
        found = api.request("POST", PODS, body=gpu_pod(), query={"dryRun": "All"})
    except ApiError as refusal:
        if "connection refused" in refusal.message:
            return False
        raise
    return bool(found["spec"]["schedulerName"] == "tangram-scheduler")


def test_leaf_rotates_under_load_without_one_failed_call(plane: ControlPlane, server: RotatingServer) -> None:
    is_over, answers = threading.Event(), list[bool | Exception]()

    def call() -> None:
        with Api(plane.endpoint()) as api:
            while not is_over.is_set():
                try:
                    answers.append(is_completed(api))
                except Exception as failure:  # noqa: BLE001 - whatever it is, it counts as a failed call
                    answers.append(failure)

    callers = [threading.Thread(target=call, daemon=True) for _ in range(CALLERS)]
    for caller in callers:
        caller.start()
    serials = set()
    try:
        for days, is_new in ((0, False), (4, False), (5, True), (1, False)):
            assert server.pass_days(days) is is_new
            serials.add(server.serial())
            enough = len(answers) + CALLS_BETWEEN
            wait_for("calls were made", lambda enough=enough: len(answers) >= enough, within_s=60)
    finally:
        is_over.set()
        for caller in callers:
            caller.join(timeout=30)
    assert len(serials) == 2
    assert set(answers) == {True}
