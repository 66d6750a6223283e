"""Reports that are answered where they are parsed, over real sockets; whatever is not plain goes the usual way."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from extender import at_once
from extender.at_once import AtOnceRoute, served_at_once
from extender.routes.raw import Answer, Headers

LIMIT = 100


class Site:
    """Answers at once what starts with "now"; the application behind says how it was reached."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def handle(self, body: bytes, headers: Headers) -> Answer | None:
        self.asked.append(body)
        if body.startswith(b"bug"):
            raise ValueError("planted")
        return Answer(b"at once: " + body + headers.get(b"x-mark", b"")) if body.startswith(b"now") else None

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        text = f"{scope['method']} {scope['path']} {scope['query_string'].decode()}: ".encode() + body
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(text))]})
        await send({"type": "http.response.body", "body": text})


@asynccontextmanager
async def served(
    site: Site, keep_alive_s: int = 5
) -> AsyncIterator[Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]]:
    protocol = served_at_once({"/now": AtOnceRoute(site.handle, LIMIT)})
    config = uvicorn.Config(
        site.app,
        http=protocol,
        loop="asyncio",
        interface="asgi3",
        ws="none",
        lifespan="off",
        log_config=None,
        timeout_keep_alive=keep_alive_s,
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as opened:
        task = asyncio.create_task(server.serve(sockets=[opened]))
        address = opened.getsockname()
        while not server.started:
            await asyncio.sleep(0.01)
        try:
            yield lambda: asyncio.open_connection(*address)
        finally:
            server.should_exit = True
            await task


def request(body: bytes, head: bytes = b"", path: bytes = b"/now", method: bytes = b"POST") -> bytes:
    return b"%b %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n%b\r\n%b" % (method, path, len(body), head, body)


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
    return int(head.split(b" ")[1]), await asyncio.wait_for(reader.readexactly(int(lengths[0])), 5)


def talk(*pieces: bytes, answers: int = 1) -> tuple[list[tuple[int, bytes]], Site]:
    """Send pieces one by one on one connection, and return so many answers."""
    site = Site()

    async def scenario() -> list[tuple[int, bytes]]:
        async with served(site) as connect:
            reader, writer = await connect()
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.01)
            found = [await answer(reader) for _ in range(answers)]
            writer.close()
            return found

    return asyncio.run(scenario()), site


def test_plain_request_is_answered_at_once_with_its_headers():
    assert talk(request(b"now 1", b"X-Mark: !\r\n"))[0] == [(200, b"at once: now 1!")]


def test_connection_serves_one_request_after_the_other_on_either_way():
    pieces = request(b"now 1"), request(b"later"), request(b"now 2"), request(b"", path=b"/else", method=b"GET")
    found, _ = talk(*pieces, answers=4)
    assert [body for _, body in found] == [b"at once: now 1", b"POST /now : later", b"at once: now 2", b"GET /else : "]


def test_requests_that_come_together_are_answered_in_their_order():
    found, _ = talk(request(b"now 1") + request(b"later 2") + request(b"now 3") + request(b"now 4"), answers=4)
    assert [body[-1:] for _, body in found] == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("size", [1, 7, 50])
def test_request_in_pieces_is_put_together(size: int):
    whole = request(b"now " + b"x" * 40)
    found, _ = talk(*(whole[start : start + size] for start in range(0, len(whole), size)))
    assert found == [(200, b"at once: now " + b"x" * 40)]


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(request(b"now", path=b"/now?x=1"), id="query"),
        pytest.param(request(b"now", method=b"PUT"), id="method"),
        pytest.param(request(b"now" + b"x" * LIMIT), id="too long"),
        pytest.param(request(b"now", b"connection: close\r\n"), id="connection not kept"),
        pytest.param(
            b"POST /now HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nnow\r\n0\r\n\r\n", id="chunked"
        ),
        pytest.param(b"POST /now HTTP/1.0\r\ncontent-length: 3\r\n\r\nnow", id="old version"),
    ],
)
def test_request_that_is_not_plain_goes_the_usual_way(sent: bytes):
    found, site = talk(sent)
    assert found[0][1].split(b" ")[0] in (b"POST", b"PUT")
    assert site.asked == []


def test_bug_in_the_handler_is_met_again_on_the_usual_way():
    assert talk(request(b"bug"))[0] == [(200, b"POST /now : bug")]


def test_quiet_connection_is_closed_and_a_busy_one_is_not():
    """The timer of a connection is not set anew for each answer, and counts from the last one all the same."""
    site = Site()

    async def scenario() -> tuple[float, bytes]:
        async with served(site, keep_alive_s=1) as connect:
            reader, writer = await connect()
            for number in range(4):
                writer.write(request(b"now %d" % number))
                assert await answer(reader) == (200, b"at once: now %d" % number)
                await asyncio.sleep(0.4)
            began = time.monotonic()
            rest = await asyncio.wait_for(reader.read(), 5)
            writer.close()
            return time.monotonic() - began, rest

    waited_s, rest = asyncio.run(scenario())
    assert rest == b""
    assert 0.4 < waited_s < 4


def test_body_that_does_not_come_ends_the_connection(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(at_once, "BODY_S", 0.05)
    found, site = talk(request(b"now 1")[:-2])
    assert found == [(408, b"the body did not come in time")]
    assert site.asked == []


def test_caller_that_hangs_up_in_the_middle_disturbs_nobody():
    site = Site()

    async def scenario() -> tuple[int, bytes]:
        async with served(site) as connect:
            _, gone = await connect()
            gone.write(request(b"now 1")[:-2])
            await gone.drain()
            gone.close()
            reader, writer = await connect()
            writer.write(request(b"now 2"))
            found = await answer(reader)
            writer.close()
            return found

    assert asyncio.run(scenario()) == (200, b"at once: now 2")
    assert site.asked == [b"now 2"]


@pytest.mark.parametrize(
    "before",
    [pytest.param(b"", id="first"), pytest.param(b"now 1", id="after at once"), pytest.param(b"1", id="after usual")],
)
def test_head_that_only_trickles_in_ends_the_connection(before: bytes):
    async def scenario() -> bool:
        async with served(Site(), keep_alive_s=1) as connect:
            reader, writer = await connect()
            if before:
                writer.write(request(before))
                await answer(reader)
            rest = asyncio.create_task(reader.read())
            for piece in [b"POST /now HTTP/1.1\r\n", *[b"x-more: 1\r\n"] * 100]:
                if rest.done():
                    break
                writer.write(piece)
                await asyncio.sleep(0.05)
            was_closed = rest.done()
            writer.close()
            return was_closed and await rest == b""

    assert asyncio.run(scenario())


@pytest.mark.parametrize(
    ("body", "answered"),
    [
        pytest.param(b"now 1", b"at once: now 1", id="at once"),
        pytest.param(b"later 1", b"POST /now : later 1", id="the usual way"),
    ],
)
def test_server_that_stops_answers_what_is_coming_in_and_closes(body: bytes, answered: bytes):
    async def scenario() -> tuple[tuple[int, bytes], bytes]:
        async with served(Site()) as connect:
            reader, writer = await connect()
            whole = request(body)
            writer.write(whole[:-3])
            await asyncio.sleep(0.05)

            async def rest() -> tuple[tuple[int, bytes], bytes]:
                await asyncio.sleep(0.3)
                writer.write(whole[-3:])
                found = await answer(reader), await asyncio.wait_for(reader.read(), 5)
                writer.close()
                return found

            ended = asyncio.create_task(rest())
        return await ended

    assert asyncio.run(scenario()) == ((200, answered), b"")
