"""A loopback receiver of reports: a real HTTP server that remembers what came and answers as told."""

from __future__ import annotations

import contextlib
import http.server
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Self

import msgspec

from node_agent.report import Answer, Booking, Report

WAIT_S = 5.0


class Receiver:
    """Listens on a loopback port; ``answer`` makes the answer to each report, ``status`` replaces 200.

    Where ``token`` is set, reports with another one are refused with 401 and only their times are kept.
    """

    def __init__(self, address: str = "127.0.0.1", port: int = 0, context: ssl.SSLContext | None = None) -> None:
        self.reports: list[Report] = []
        self.headers: list[dict[str, str]] = []
        self.connections = 0
        self.token: str | None = None
        self.refused_at: list[float] = []
        self.status = 200
        self.bookings: tuple[Booking, ...] = ()
        self.cordoned: tuple[str, ...] = ()
        self.generation = 1
        self.heartbeat_s = 15.0
        self.raw_answer: bytes | None = None
        self._news = threading.Condition()
        self._server = _Server((address, port), self._handler_class())
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.close_all()
        self._thread.join(WAIT_S)

    def wait_for(self, condition: Callable[[], bool], timeout_s: float = WAIT_S) -> bool:
        with self._news:
            return self._news.wait_for(condition, timeout_s)

    def answer_to(self, report: Report) -> bytes:
        if self.raw_answer is not None:
            return self.raw_answer
        knows = report.bookings_generation == self.generation
        return msgspec.json.encode(
            Answer(
                bookings_generation=self.generation,
                bookings=None if knows else self.bookings,
                heartbeat_s=self.heartbeat_s,
                cordoned=self.cordoned,
            )
        )

    def _handler_class(self) -> type[http.server.BaseHTTPRequestHandler]:
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                receiver.connections += 1
                super().setup()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                report = msgspec.json.decode(body, type=Report)
                is_known = receiver.token in {None, self.headers.get("Authorization", "").removeprefix("Bearer ")}
                answer = receiver.answer_to(report) if is_known else b"{}"
                with receiver._news:
                    if is_known:
                        receiver.reports.append(report)
                        receiver.headers.append({**dict(self.headers), ":path": self.path})
                    else:
                        receiver.refused_at.append(time.monotonic())
                    receiver._news.notify_all()
                self.send_response(receiver.status if is_known else 401)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Keep the test output quiet."""

        return Handler


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *arguments: object) -> None:
        self._open: set[object] = set()
        super().__init__(*arguments)  # type: ignore[arg-type]

    def process_request(self, request: object, client_address: object) -> None:
        self._open.add(request)
        super().process_request(request, client_address)  # type: ignore[arg-type]

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that hang up in the middle are part of the tests."""

    def close_all(self) -> None:
        self.server_close()
        for request in self._open:
            with contextlib.suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)  # type: ignore[attr-defined]
            request.close()  # type: ignore[attr-defined]


def wait_until(condition: Callable[[], bool], timeout_s: float = WAIT_S) -> bool:
    """Poll a condition that no receiver announces."""
    end_s = time.monotonic() + timeout_s
    while time.monotonic() < end_s:
        if condition():
            return True
        time.sleep(0.01)
    return condition()
