"""Serves the simulated API server on loopback from a thread of its own, with an event loop of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from types import TracebackType
from typing import Self

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from extender.errors import ExtenderError
from extender.simulation.apiserver import SimulatedApiServer
from extender.simulation.apiserver_http import ABORT, ApiServerApp

_START_S = 10.0
_KEEP_ALIVE_S = 120


class _CuttableProtocol(HttpToolsProtocol):
    """uvicorn's protocol, whose application may cut the connection: how an answer gets lost."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {ABORT: self._cut}  # type: ignore[dict-item]

    def _cut(self) -> None:
        self.transport.abort()


class ServedApiServer:
    """A running ``SimulatedApiServer``; ``url`` is where. A context manager: leaving it ends the thread."""

    def __init__(self, server: SimulatedApiServer, port: int = 0, bookmark_s: float = 60.0) -> None:
        self.server = server
        self._app = ApiServerApp(server, bookmark_s)
        self._socket = socket.create_server(("127.0.0.1", port))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        configuration = uvicorn.Config(
            self._app,
            http=_CuttableProtocol,
            ws="none",
            lifespan="off",
            log_level="critical",
            access_log=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=1,
        )
        self._uvicorn = _AnnouncingServer(configuration)
        self._thread = threading.Thread(target=self._uvicorn.run, args=([self._socket],), name="apiserver", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._uvicorn.is_up.wait(_START_S):
            msg = f"the simulated API server did not start in {_START_S} s"
            raise ExtenderError(msg)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._uvicorn.end(self._app)
        self._thread.join(_START_S)
        self._socket.close()


class _AnnouncingServer(uvicorn.Server):
    """uvicorn's server that says when it is up, and can be ended from another thread."""

    def __init__(self, configuration: uvicorn.Config) -> None:
        super().__init__(configuration)
        self.is_up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self.is_up.set()

    def end(self, app: ApiServerApp) -> None:
        """Close watches and stop serving; from any thread."""
        self.should_exit = True
        self._loop.call_soon_threadsafe(app.close_watches)
