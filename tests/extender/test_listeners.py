"""Listeners: each audience its door, one lifespan, mutual TLS where it is asked for, leaves that change under load."""

from __future__ import annotations

import asyncio
import http.client
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from extender.authorities import Pair, Subject, issue, make_authority
from extender.certificates import Audience, IssuedLeaf, ServerTls
from extender.listeners import Listener, Listeners, audience_of

SERVER = Subject("tangram", ("127.0.0.1",))
DOORS = {
    "/v1/filter": Audience.SCHEDULER,
    "/v1/prioritize": Audience.SCHEDULER,
    "/v1/preempt": Audience.SCHEDULER,
    "/v1/bind": Audience.SCHEDULER,
    "/v1/reports": Audience.AGENTS,
    "/v1/admission/mutate": Audience.WEBHOOKS,
    "/": Audience.PEOPLE,
    "/readyz": Audience.PEOPLE,
    "/v1/bind/": Audience.PEOPLE,
    "/v1//bind": Audience.PEOPLE,
}


class Application:
    """Says which path it was asked for; counts its lifespan."""

    def __init__(self, *, starts: bool = True) -> None:
        self.events: list[str] = []
        self.starts = starts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        body = scope["path"].encode()
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        self.events.append("startup")
        await send({"type": "lifespan.startup.complete" if self.starts else "lifespan.startup.failed"})
        await receive()
        self.events.append("shutdown")
        await send({"type": "lifespan.shutdown.complete"})


@asynccontextmanager
async def serving(app: Application, *listeners: Listener) -> AsyncIterator[dict[Audience, int]]:
    all_of_them = Listeners(app, listeners, grace_s=1)
    ports = {audience: port for audience, (_, port) in all_of_them.bind().items()}
    task = asyncio.create_task(all_of_them.serve())
    try:
        yield ports  # The sockets listen already: what comes too early waits in their backlog.
    finally:
        all_of_them.stop()
        await asyncio.wait_for(task, 10)


async def answer(port: int, path: str, method: str = "GET", tls: ssl.SSLContext | None = None) -> int | None:
    return await asyncio.to_thread(ask, port, path, method, tls)


def ask(port: int, path: str, method: str = "GET", tls: ssl.SSLContext | None = None) -> int | None:
    """Return the status of one request on a connection of its own; None where nothing or no TLS is served."""
    if tls is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    else:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=tls)
    try:
        connection.request(method, path)
        return connection.getresponse().status
    except (ConnectionError, ssl.SSLError, http.client.BadStatusLine):
        return None
    finally:
        connection.close()


def plain(*audiences: Audience) -> Listener:
    return Listener(frozenset(audiences), "127.0.0.1", 0)


def trusting(authority: Pair, client: Pair | None, directory: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.certificate_pem.decode())
    if client is not None:
        file = directory / f"client-{id(client)}.pem"
        file.write_bytes(client.certificate_pem + client.key_pem)
        context.load_cert_chain(file)
    return context


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


@pytest.mark.parametrize(("path", "audience"), DOORS.items())
def test_every_path_has_one_audience(path: str, audience: Audience) -> None:
    assert audience_of(path) is audience


def test_path_of_another_audience_does_not_exist() -> None:
    async def test() -> None:
        async with serving(Application(), *(plain(audience) for audience in Audience)) as ports:
            for path, audience in DOORS.items():
                method = "GET" if audience is Audience.PEOPLE else "POST"
                found = {door: await answer(port, path, method) for door, port in ports.items()}
                assert found == {door: 200 if door is audience else 404 for door in Audience}

    run(test)


def test_people_can_only_read() -> None:
    async def test() -> None:
        async with serving(Application(), plain(Audience.PEOPLE)) as ports:
            assert await answer(ports[Audience.PEOPLE], "/", "POST") == 405
            assert await answer(ports[Audience.PEOPLE], "/", "HEAD") == 200

    run(test)


def test_lifespan_runs_once_around_all_listeners() -> None:
    async def test() -> None:
        app = Application()
        async with serving(app, plain(Audience.AGENTS), plain(Audience.PEOPLE, Audience.SCHEDULER)) as ports:
            for port in ports.values():
                await answer(port, "/")
            assert app.events == ["startup"]
        assert app.events == ["startup", "shutdown"]

    run(test)


def test_application_that_does_not_start_is_an_error() -> None:
    async def test() -> None:
        with pytest.raises(RuntimeError, match="did not start"):
            await Listeners(Application(starts=False), [plain(Audience.PEOPLE)]).serve()

    run(test)


def test_taken_port_names_the_listener() -> None:
    first = Listeners(Application(), [plain(Audience.AGENTS)])
    port = first.bind()[Audience.AGENTS][1]
    second = Listeners(Application(), [Listener(frozenset({Audience.PEOPLE}), "127.0.0.1", port)])
    with pytest.raises(OSError, match=f"listener for people: 127.0.0.1 port {port}: .*in use"):
        second.bind()
    first.close()


def test_scheduler_needs_a_certificate_of_its_own_authority(tmp_path: Path) -> None:
    now, week = datetime.now(UTC), timedelta(days=7)
    ours, other = make_authority("scheduler", now), make_authority("people", now)
    client = Subject("kube-scheduler", is_client=True)
    tls = ServerTls(IssuedLeaf(ours, SERVER, tmp_path / "scheduler"), ours.certificate_pem)

    async def test() -> None:
        listener = Listener(frozenset({Audience.SCHEDULER}), "127.0.0.1", 0, tls.context)
        async with serving(Application(), listener, plain(Audience.PEOPLE)) as ports:
            port = ports[Audience.SCHEDULER]
            good = trusting(ours, issue(ours, client, now, week), tmp_path)
            assert await answer(port, "/v1/bind", "POST", good) == 200
            for refused in (None, issue(other, client, now, week), issue(ours, SERVER, now, week)):
                assert await answer(port, "/v1/bind", "POST", trusting(ours, refused, tmp_path)) is None
            assert await answer(port, "/v1/bind", "POST") is None
            assert await answer(ports[Audience.PEOPLE], "/readyz") == 200

    run(test)


def test_leaf_rotates_under_load_without_one_failed_call(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority = make_authority("agents", now - timedelta(days=60))
    turn = [now - timedelta(days=10)]
    leaf = IssuedLeaf(authority, SERVER, tmp_path / "agents", lifetime=timedelta(days=12), now=lambda: turn[0])
    tls = ServerTls(leaf)
    context = trusting(authority, None, tmp_path)

    async def test() -> None:
        statuses: list[int | None] = []
        is_over = asyncio.Event()

        async def caller(port: int) -> None:
            while not is_over.is_set():
                statuses.append(await answer(port, "/v1/reports", "POST", context))

        listener = Listener(frozenset({Audience.AGENTS}), "127.0.0.1", 0, tls.context)
        async with serving(Application(), plain(Audience.PEOPLE), listener) as ports:
            callers = [asyncio.create_task(caller(ports[Audience.AGENTS])) for _ in range(4)]
            for days in (0, 4, 8):
                turn[0] = now - timedelta(days=10 - days)
                assert tls.reload() is (days == 8)  # Due after eight of twelve days.
                before = len(statuses)
                while len(statuses) < before + 20:
                    await asyncio.sleep(0.01)
            is_over.set()
            await asyncio.gather(*callers)
        assert set(statuses) == {200}

    run(test)
