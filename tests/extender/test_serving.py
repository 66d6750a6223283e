"""The extender behind a real server on loopback: connections that stay, and many calls at once."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Callable, Iterator

import pytest

from extender.app import Extender
from extender.serving import BACKLOG, KEEP_ALIVE_S, server_for
from extender.settings import Settings
from tests.support.builders import devices, pod
from tests.support.harness import as_json, harness

READ_TIMEOUT_S = 10.0


class Served:
    """An extender that lives in a thread of its own; ``port`` is where it listens."""

    def __init__(self, make_app: Callable[[], Extender]) -> None:
        self._make_app = make_app
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._started.wait(READ_TIMEOUT_S)

    async def _serve(self) -> None:
        self._server = server_for(self._make_app(), Settings(port=0))
        serving = asyncio.create_task(self._server.serve())
        while not self._server.started:
            await asyncio.sleep(0.01)
        self.port: int = self._server.servers[0].sockets[0].getsockname()[1]
        self._started.set()
        await serving

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(READ_TIMEOUT_S)


@pytest.fixture
def served() -> Iterator[Served]:
    server = Served(lambda: harness({"n": devices(1)}).app)
    yield server
    server.stop()


def test_a_connection_is_used_again_and_every_answer_has_its_length(served: Served) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=READ_TIMEOUT_S)
    body = json.dumps({"Pod": as_json(pod("p", gpu=1)), "Nodes": None, "NodeNames": ["n"]})
    sockets = set()
    for path, sent in (("/v1/filter", body), ("/v1/bind", "null"), ("/v1/prioritize", body), ("/v1/filter", body)):
        connection.request("POST", path, sent)
        sockets.add(id(connection.sock))
        response = connection.getresponse()
        content = response.read()
        assert response.status == 200
        assert int(response.headers["content-length"]) == len(content)
    assert len(sockets) == 1
    connection.close()


def test_idle_connections_outlive_the_schedulers_client() -> None:
    config = server_for(harness().app, Settings()).config
    assert config.timeout_keep_alive == KEEP_ALIVE_S > 90
    assert (config.workers, config.backlog, config.access_log) == (1, BACKLOG, False)
