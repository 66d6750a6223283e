"""Sends the head and the body of an answer in one piece: one TLS record and one system call instead of two.

uvicorn writes them one after the other. For small answers, such as those to reports, the second write costs as much as
all the rest of the server's work on the connection.
"""

from __future__ import annotations

import asyncio
from typing import cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_WORTH_TWO_PIECES = 16_384
"""Bytes from which handing over two pieces costs less than joining them."""


class GatheredTransport:
    """A transport that holds back what is written until the loop's next turn, and then writes it at once."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []

    def __getattr__(self, name: str) -> object:
        """Leave everything else to the transport."""
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Take a piece; the order of pieces is kept."""
        if not self._held:
            self._loop.call_soon(self.flush)
        self._held.append(data)

    def write_whole(self, head: bytes, body: bytes) -> None:
        """Take an answer that nothing follows: it goes at once, behind what is held."""
        if self._held:
            self._held += head, body
        elif len(body) < _WORTH_TWO_PIECES:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))

    def flush(self) -> None:
        """Write what is held."""
        if self._held:
            data = b"".join(self._held) if len(self._held) > 1 else self._held[0]
            self._held.clear()
            self._transport.write(data)

    def close(self) -> None:
        """Write what is held, then close."""
        self.flush()
        self._transport.close()


class GatheringProtocol(HttpToolsProtocol):
    """uvicorn's protocol on a gathered transport."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Put the gathering between the server and the transport."""
        super().connection_made(cast("asyncio.Transport", GatheredTransport(transport, self.loop)))
