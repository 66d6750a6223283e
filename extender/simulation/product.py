"""The product under simulation: the extender as a user starts it, in its own process, and simple questions to it."""

from __future__ import annotations

import time

import urllib3

from extender.simulation.leash import Child

EXTENDER_URL = "TANGRAM_EXTENDER_URL"
"""Where the simulated agents are told the address."""

_START_S = 60.0
_PAUSE_S = 0.1


class ProductFailed(RuntimeError):
    """The extender did not start, or ended by itself."""


class Product:
    """``python -m extender`` against an API server, listening on one loopback port."""

    def __init__(self, port: int, api_server: str) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._pool = urllib3.PoolManager(num_pools=1, maxsize=2)
        self._child = Child(
            "extender",
            {
                "TANGRAM_API_SERVER": api_server,
                "TANGRAM_HOST": "127.0.0.1",
                "TANGRAM_PORT": str(port),
                "TANGRAM_LOG_LEVEL": "error",
                "TANGRAM_HEARTBEAT_S": "5",
            },
        )

    def wait_until_ready(self) -> None:
        """Return once it has the lists of pods and nodes; raise ProductFailed where that takes too long."""
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            self.check()
            if self._status("/readyz") == 200:
                return
            time.sleep(_PAUSE_S)
        raise ProductFailed(f"the extender at {self.url} was not ready within {_START_S:g} s")

    def check(self) -> None:
        """Raise ProductFailed if it has ended."""
        status = self._child.exit_status
        if status is not None:
            raise ProductFailed(f"the extender ended by itself with status {status}")

    def is_serving(self) -> bool:
        """Return whether it answers, page included."""
        return self._child.exit_status is None and self._status("/healthz") == 200 and self._status("/") == 200

    def metrics(self) -> str:
        """Return its metrics as text, empty where it does not answer."""
        try:
            return self._pool.request("GET", f"{self.url}/metrics", timeout=5.0).data.decode()
        except urllib3.exceptions.HTTPError:
            return ""

    def stop(self) -> None:
        """End it."""
        self._child.stop()
        self._pool.clear()

    def _status(self, path: str) -> int | None:
        try:
            return self._pool.request("GET", f"{self.url}{path}", timeout=2.0, retries=False).status
        except urllib3.exceptions.HTTPError:
            return None
