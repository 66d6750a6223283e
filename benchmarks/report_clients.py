"""Many agents at once, from one event loop: a kept TLS connection each, bytes out, status and length read back.

As small as can be, so that a machine with two cores can drive the extender harder than a cluster would.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import cast

import msgspec

from node_agent.report import Answer

_OPENING_AT_ONCE = 32
_PATIENCE_S = 60.0


class AgentConnection(asyncio.Protocol):
    """One agent's connection. One report at a time, as a real courier sends them.

    ``bookings_generation`` is what the last answer said, for the next report to repeat.
    """

    def __init__(self, token: str) -> None:
        self._head = (
            "POST /v1/reports HTTP/1.1\r\nHost: tangram-extender\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {token}\r\nContent-Length: "
        ).encode()
        self._transport: asyncio.WriteTransport | None = None
        self._buffer = bytearray()
        self.bookings_generation: int | None = None
        self._waiting: asyncio.Future[int] | None = None

    @property
    def is_idle(self) -> bool:
        """Return whether the last report was answered."""
        return self._waiting is None or self._waiting.done()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the report under way."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(exc or ConnectionError("the extender closed the connection"))

    def data_received(self, data: bytes) -> None:
        """Collect an answer and hand out its status once it is whole."""
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 or self._waiting is None or self._waiting.done():
            return
        head = bytes(self._buffer[:end]).lower()
        length = int(head.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
        if len(self._buffer) >= end + 4 + length:
            body, status = bytes(self._buffer[end + 4 :]), int(head[9:12])
            self._buffer.clear()
            if status == HTTPStatus.OK:
                self.bookings_generation = msgspec.json.decode(body, type=Answer).bookings_generation
            self._waiting.set_result(status)

    def post(self, body: bytes) -> asyncio.Future[int]:
        """Send a report and return the future status."""
        assert self._transport is not None
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(self._head + str(len(body)).encode() + b"\r\n\r\n" + body)
        return self._waiting

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()


@dataclass(slots=True)
class Sent:
    """What came of a series of reports: answers by status, and turns left out because an answer was still awaited."""

    statuses: dict[int, int] = field(default_factory=dict)
    skipped: int = 0

    def note(self, status: int) -> None:
        """Count one answer."""
        self.statuses[status] = self.statuses.get(status, 0) + 1


async def open_all(port: int, tokens: Sequence[str], context: ssl.SSLContext) -> list[AgentConnection]:
    """Open a connection for each token, a few at a time."""
    places = asyncio.Semaphore(_OPENING_AT_ONCE)

    async def connect(token: str) -> AgentConnection:
        async with places:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: AgentConnection(token),
                "127.0.0.1",
                port,
                ssl=context,
                server_hostname="tangram-extender",
                ssl_handshake_timeout=_PATIENCE_S,
            )
            return connection

    return list(await asyncio.gather(*(connect(token) for token in tokens)))


async def answered(pending: Sequence[asyncio.Future[int]], sent: Sent) -> None:
    """Wait for the answers and count them."""
    for status in await asyncio.wait_for(asyncio.gather(*pending), _PATIENCE_S):
        sent.note(status)
