"""One listener for each audience, in one process and one loop: same application, different doors.

=========  ==========================================================  =======================================
audience   paths                                                       who gets in
=========  ==========================================================  =======================================
scheduler  the four verbs                                              loopback, or a client certificate
webhooks   ``/v1/admission/...``                                       anyone; answers are for the API server
agents     ``/v1/reports``                                             anyone; the token decides (``identity``)
people     everything else: page, API, probes, metrics; read-only      anyone; pod names need a viewer's token
=========  ==========================================================  =======================================

A path of another audience does not exist on a listener (404), so no network policy is needed to keep callers apart,
though the chart has one. The people's listener takes GET and HEAD only.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.lifespan.on import LifespanOn

from extender.at_once import AtOnceRoute, served_at_once
from extender.certificates import Audience

KEEP_ALIVE_S = 120
"""kube-scheduler's client keeps idle connections for 90 s and does not repeat a call on one that is being closed."""

BACKLOG = 8192
SCHEDULER_PATHS = frozenset({"/v1/filter", "/v1/prioritize", "/v1/preempt", "/v1/bind"})
REPORT_PATHS = frozenset({"/v1/reports"})
ADMISSION_PREFIX = "/v1/admission/"
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_SAFE_METHODS = ("GET", "HEAD")


def audience_of(path: str) -> Audience:
    """Return for whom a path is."""
    if path in SCHEDULER_PATHS:
        return Audience.SCHEDULER
    if path in REPORT_PATHS:
        return Audience.AGENTS
    return Audience.WEBHOOKS if path.startswith(ADMISSION_PREFIX) else Audience.PEOPLE


class PathFilter:
    """Lets requests through whose path is for one of the audiences; everything else is 404, as if it did not exist."""

    def __init__(self, app: ASGIApp, audiences: frozenset[Audience]) -> None:
        self._app = app
        self._audiences = audiences

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        audience = audience_of(scope["path"])
        if audience not in self._audiences:
            await _refuse(send, 404, b"no such path on this listener")
        elif audience is Audience.PEOPLE and scope["method"] not in _SAFE_METHODS:
            await _refuse(send, 405, b"this listener is read-only")
        else:
            await self._app(scope, receive, send)


@dataclass(frozen=True, slots=True)
class Listener:
    """Where one or more audiences are served; ``tls`` None is plain HTTP, for loopback. Port 0 takes a free one."""

    audiences: frozenset[Audience]
    host: str
    port: int
    tls: ssl.SSLContext | None = None


class _Server(uvicorn.Server):
    """A server among several: signals are for ``Listeners``."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the process's signals alone."""
        yield


class Listeners:
    """Serves the application on all listeners until told to stop; its lifespan runs once, around all of them."""

    def __init__(
        self,
        app: ASGIApp,
        listeners: Sequence[Listener],
        grace_s: int = 10,
        at_once: Mapping[str, AtOnceRoute] | None = None,
    ) -> None:
        """``grace_s`` seconds are given to requests under way when stopping; ``at_once`` by path, as in ``at_once``."""
        self._app = app
        self._listeners = tuple(listeners)
        self._servers = tuple(_Server(_config(app, listener, grace_s, at_once or {})) for listener in self._listeners)
        self._sockets: list[socket.socket] = []

    def bind(self) -> Mapping[Audience, tuple[str, int]]:
        """Take all addresses and return them by audience; OSError naming the one that cannot be had."""
        for listener in self._listeners:
            self._sockets.append(_bound(listener))
        return {
            audience: (listener.host, opened.getsockname()[1])
            for listener, opened in zip(self._listeners, self._sockets, strict=True)
            for audience in listener.audiences
        }

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        with asyncio.Runner(loop_factory=self._servers[0].config.get_loop_factory()) as runner:
            runner.run(self.serve_until_signal())

    async def serve_until_signal(self) -> None:
        """Serve until SIGTERM or SIGINT; for the main thread."""
        loop = asyncio.get_running_loop()
        for number in _STOP_SIGNALS:
            loop.add_signal_handler(number, self.stop)
        try:
            await self.serve()
        finally:
            for number in _STOP_SIGNALS:
                loop.remove_signal_handler(number)

    async def serve(self) -> None:
        """Serve until ``stop`` is called. RuntimeError if the application does not start."""
        if not self._sockets:
            self.bind()
        lifespan = LifespanOn(uvicorn.Config(self._app, lifespan="on", log_config=None))
        await lifespan.startup()
        if lifespan.should_exit:
            self.close()
            raise RuntimeError("the application did not start; its log says why")
        try:
            await self._serve_all()
        finally:
            await lifespan.shutdown()

    def stop(self) -> None:
        """Take no new connections, finish what is under way, then let ``serve`` return."""
        for server in self._servers:
            server.should_exit = True

    def close(self) -> None:
        """Give back the addresses that ``bind`` took, where nothing is served after all."""
        while self._sockets:
            self._sockets.pop().close()

    async def _serve_all(self) -> None:
        """Serve on every listener; where one ends, all end."""
        tasks = [
            asyncio.create_task(server.serve(sockets=[opened]), name=f"listener-{opened.getsockname()[1]}")
            for server, opened in zip(self._servers, self._sockets, strict=True)
        ]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        self.stop()
        await asyncio.gather(*tasks)


def _config(app: ASGIApp, listener: Listener, grace_s: int, at_once: Mapping[str, AtOnceRoute]) -> uvicorn.Config:
    of_listener = {path: route for path, route in at_once.items() if audience_of(path) in listener.audiences}
    config = uvicorn.Config(
        PathFilter(app, listener.audiences),
        loop="uvloop",
        http=served_at_once(of_listener),
        ws="none",
        lifespan="off",
        workers=1,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=grace_s,
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        date_header=False,
    )
    config.load()
    config.ssl = listener.tls
    return config


def _bound(listener: Listener) -> socket.socket:
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if listener.host == "::":
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        opened.bind((listener.host, listener.port))
        opened.listen(BACKLOG)
    except OSError as error:
        opened.close()
        names = ", ".join(sorted(listener.audiences))
        raise OSError(error.errno, f"listener for {names}: {listener.host} port {listener.port}: {error}") from error
    return opened


async def _refuse(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
