"""Bytes in, bytes out: the routes that kube-scheduler and the agents call, without a framework in between.

Bodies are bounded before they are read whole. Every answer carries Content-Length, since the scheduler's client does
not reuse a connection otherwise (extender-protocol.md section 7.3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from extender.errors import BodyTooLarge

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"
BODY_S = 30.0
"""Seconds within which a whole body must have come: whoever stalls holds what was sent so far no longer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer; ``closes`` ends the connection behind it."""

    body: bytes
    status: int = 200
    content_type: bytes = JSON
    closes: bool = False


Headers = Mapping[bytes, bytes]
Handler = Callable[[bytes, Headers], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class RawRoute:
    """A handler of POST bodies up to ``max_body_bytes``."""

    handle: Handler
    max_body_bytes: int


def later(handle: Callable[[bytes, Headers], Answer]) -> Handler:
    """Return a handler that has nothing to wait for as one that may."""

    async def handled(body: bytes, headers: Headers) -> Answer:
        return handle(body, headers)

    return handled


class FrontDoor:
    """Answers raw routes itself and passes everything else on. Exact paths only: a redirect would double every call."""

    def __init__(self, routes: Mapping[str, RawRoute], behind: ASGIApp) -> None:
        self._routes = routes
        self._behind = behind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's request."""
        route = self._routes.get(scope["path"]) if scope["type"] == "http" else None
        if route is None:
            await self._behind(scope, receive, send)
        else:
            await _send(send, await _answer(route, scope, receive))


async def _answer(route: RawRoute, scope: Scope, receive: Receive) -> Answer:
    if scope["method"] != "POST":
        return Answer(b"only POST is answered here", 405, TEXT)
    headers: Headers = dict(scope["headers"])
    try:
        async with asyncio.timeout(BODY_S):
            body = await _read(receive, headers, route.max_body_bytes)
    except TimeoutError:
        return Answer(b"the body did not come in time", 408, TEXT, closes=True)
    except BodyTooLarge as error:
        return Answer(str(error).encode(), 413, TEXT)
    if body is None:
        return Answer(b"", 400, TEXT)
    return await route.handle(body, headers)


async def _read(receive: Receive, headers: Headers, limit: int) -> bytes | None:
    """Return the body, None if the caller hung up; raise BodyTooLarge as soon as that is known."""
    announced = headers.get(b"content-length", b"")
    if announced.isdigit() and int(announced) > limit:
        raise BodyTooLarge(int(announced), limit)
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise BodyTooLarge(size, limit)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


async def _send(send: Send, answer: Answer) -> None:
    headers = [(b"content-type", answer.content_type), (b"content-length", str(len(answer.body)).encode())]
    if answer.closes:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
