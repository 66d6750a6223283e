"""A keep-alive HTTP/1.1 client that sends prepared bytes and reads to Content-Length, as the scheduler's client does.

Nothing is parsed but the status line and the length, so what is timed is the server.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

_CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: status code, body, and seconds from the first byte sent to the last byte read."""

    status: int
    body: bytes
    seconds: float


class KeepAliveClient:
    """One connection to a server on loopback, opened at once and kept."""

    def __init__(self, port: int, timeout_s: float = 30.0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def post(self, path: str, body: bytes) -> Answer:
        """Send one POST and read its answer. Raises OSError when the connection breaks."""
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: kube-scheduler\r\n"
            f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\n\r\n"
        )
        started = time.perf_counter()
        self._socket.sendall(head.encode() + body)
        status, answer = self._read()
        return Answer(status, answer, time.perf_counter() - started)

    def _read(self) -> tuple[int, bytes]:
        buffer = bytearray()
        while (end := buffer.find(b"\r\n\r\n")) < 0:
            self._fill(buffer)
        head = bytes(buffer[:end]).lower()
        status = int(head[9:12])
        length = int(head.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
        while len(buffer) < end + 4 + length:
            self._fill(buffer)
        return status, bytes(buffer[end + 4 :])

    def _fill(self, buffer: bytearray) -> None:
        part = self._socket.recv(_CHUNK)
        if not part:
            msg = "the server closed the connection in the middle of an answer"
            raise ConnectionError(msg)
        buffer += part
