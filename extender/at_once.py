"""Answers requests where they are parsed: no task, no ASGI messages, one write.

Most reports can be answered without waiting for anything, since the caller's token is remembered and the books are in
memory; so can filter, prioritize and preempt. uvicorn's way of a task and five messages a request costs three times
what the answer to a report itself does.

::

    POST of an exact path, HTTP/1.1, kept alive, length announced and within the limit, nothing else under way
        │ yes                                                              │ no
    collect the body (within 30 s), ask the route                          │
        ├─ an answer ──> one write                                         │
        └─ None: it has to wait for something ──> the whole request goes uvicorn's way, as if untouched

A connection on which no request comes is closed after the keep-alive time, from its first moment on, whatever parts of
a head trickle in. A server that stops answers the request that is coming in, and closes the connection behind it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import cast

import structlog
import uvicorn
from uvicorn.server import ServerState

from extender.gathering import GatheredTransport, GatheringProtocol
from extender.routes.raw import BODY_S, TEXT, Answer, Headers

_LOG = structlog.get_logger(__name__)
_LENGTH = b"content-length"


@dataclass(frozen=True, slots=True)
class AtOnceRoute:
    """A handler of POST bodies up to ``max_body_bytes``; it returns None where it would have to wait."""

    handle: Callable[[bytes, Headers], Answer | None]
    max_body_bytes: int


class AtOnceProtocol(GatheringProtocol):
    """uvicorn's protocol with a way of its own for some paths; ``routes`` by the path's bytes."""

    def __init__(
        self,
        routes: Mapping[bytes, AtOnceRoute],
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._routes = routes
        self._route: AtOnceRoute | None = None
        self._named: dict[bytes, bytes] = {}
        self._parts: list[bytes] = []
        self._too_late: asyncio.TimerHandle | None = None
        self._is_last = False
        self._quiet_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect the first request."""
        super().connection_made(transport)
        self._wait_for_the_next()

    def shutdown(self) -> None:
        """Take no more requests than the one that is coming in."""
        if self._route is None:
            super().shutdown()
        else:
            self._is_last = True

    def data_received(self, data: bytes) -> None:
        """Parse what came; a body that is not whole yet has half a minute."""
        super().data_received(data)
        if self._route is not None and self._too_late is None:
            self._too_late = self.loop.call_later(BODY_S, self._give_up)

    def on_headers_complete(self) -> None:
        """Choose the way of the request whose head has been read."""
        self._route = self._chosen()
        if self._route is None:
            self._go_the_usual_way()

    def on_body(self, body: bytes) -> None:
        """Keep a piece of the body."""
        if self._route is None:
            super().on_body(body)
        else:
            self._parts.append(body)

    def on_message_complete(self) -> None:
        """Answer, or hand the request over."""
        route = self._route
        if route is None:
            super().on_message_complete()
            return
        body = self._collected()
        answer = _tried(route, body, self._named)
        if answer is None:
            self._go_the_usual_way()
            super().on_body(body)
            super().on_message_complete()
            return
        self.server_state.total_requests += 1
        self._answer(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop what was collected."""
        self._collected()
        self._drop_timer()
        super().connection_lost(exc)

    def timeout_keep_alive_handler(self) -> None:
        """Hang up on a connection that has been quiet for long, or look again later."""
        left_s = self._quiet_since + self.timeout_keep_alive - self.loop.time()
        if left_s > 0 or self._route is not None:
            self.timeout_keep_alive_task = self.loop.call_later(max(left_s, 1.0), self.timeout_keep_alive_handler)
        elif not self.transport.is_closing():
            self.transport.close()

    def on_response_complete(self) -> None:
        """Wait for what follows an answer of the usual way."""
        self._quiet_since = self.loop.time()
        super().on_response_complete()

    def _unset_keepalive_if_required(self) -> None:
        """Leave the timer alone between two requests: it looks at the clock when it is due."""

    def _wait_for_the_next(self) -> None:
        self._quiet_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _drop_timer(self) -> None:
        super()._unset_keepalive_if_required()

    def _go_the_usual_way(self) -> None:
        self._drop_timer()
        super().on_headers_complete()
        if self._is_last:
            super().shutdown()

    def _answer(self, answer: Answer) -> None:
        """Write an answer, then close or wait for the next request."""
        closes = answer.closes or self._is_last
        self._write(answer, closes=closes)
        if closes:
            self.transport.close()
        else:
            self._wait_for_the_next()

    def _chosen(self) -> AtOnceRoute | None:
        route = self._routes.get(self.url)
        is_under_way = self.cycle is not None and not self.cycle.response_complete
        if route is None or is_under_way or self.pipeline or self.expect_100_continue or self.flow.write_paused:
            return None
        parser = self.parser
        if parser.get_method() != b"POST" or parser.get_http_version() != "1.1" or not parser.should_keep_alive():
            return None
        self._named = dict(self.headers)
        length = self._named.get(_LENGTH, b"")
        return route if length.isdigit() and int(length) <= route.max_body_bytes else None

    def _collected(self) -> bytes:
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._route, self._parts = None, []
        if self._too_late is not None:
            self._too_late.cancel()
            self._too_late = None
        return body

    def _write(self, answer: Answer, *, closes: bool) -> None:
        reason, ends = HTTPStatus(answer.status).phrase.encode(), b"connection: close\r\n" if closes else b""
        values = answer.status, reason, answer.content_type, len(answer.body), ends
        head = b"HTTP/1.1 %d %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n%b\r\n" % values
        cast("GatheredTransport", self.transport).write_whole(head, answer.body)

    def _give_up(self) -> None:
        """Hang up on a caller whose body did not come."""
        self._collected()
        self._answer(Answer(b"the body did not come in time", 408, TEXT, closes=True))


def served_at_once(routes: Mapping[str, AtOnceRoute]) -> type[asyncio.Protocol]:
    """Return the protocol for uvicorn's configuration; without routes it is uvicorn's own, gathered."""
    by_bytes = {path.encode(): route for path, route in routes.items()}
    return cast("type[asyncio.Protocol]", functools.partial(AtOnceProtocol, by_bytes)) if routes else GatheringProtocol


def _tried(route: AtOnceRoute, body: bytes, headers: Headers) -> Answer | None:
    try:
        return route.handle(body, headers)
    except Exception:  # noqa: BLE001 - the edge of a connection: the usual way meets the bug again and answers 500
        _LOG.exception("at_once_bug")
        return None
