"""A real extender on a simulated API server, both on loopback, for the command line to talk to."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
import structlog
import urllib3
import uvicorn

from extender.allocation import encode_allocation
from extender.app import Extender, Surroundings, create_app
from extender.kube import KubeClient
from extender.logs import set_up_logs
from extender.settings import Settings
from extender.simulation.apiserver import SimulatedApiServer
from extender.simulation.apiserving import ServedApiServer
from extender.simulation.cluster import Cluster
from scoring.request import Allocation, Share, SharingMode
from tests.support.builders import PREFIX, device, report

START_S = 90.0


@dataclass(frozen=True)
class Stage:
    url: str
    api_url: str
    app: Extender
    cluster: Cluster
    on_loop: Callable[[Callable[[Extender], None]], None]

    def post(self, path: str, body: object) -> bytes:
        answer = urllib3.request("POST", f"{self.url}{path}", body=msgspec.json.encode(body), retries=False)
        assert answer.status == 200, answer.data
        return answer.data

    def report(self, node: str, *held: object, **values: object) -> None:
        self.post("/v1/reports", report(node, *held, **values))  # type: ignore[arg-type]

    def create_pod(self, name: str, asks: dict[str, int]) -> dict[str, object]:
        return self._created(name, pod_manifest(name, asks))

    def create_bound_pod(self, name: str, node: str, uuid: str, memory_mib: int) -> dict[str, object]:
        """Create a pod on a node with an allocation that nobody decided, as a forger or a restored backup would."""
        share = Share(uuid, memory_mib, 100, SharingMode.TIME_SLICING)
        text = encode_allocation(Allocation((("main", (share,)),), "binpack"))
        manifest = pod_manifest(name, {"gpu-memory": memory_mib})
        manifest["metadata"] |= {"annotations": {f"{PREFIX}allocation": text}}  # type: ignore[operator]
        manifest["spec"] |= {"nodeName": node}  # type: ignore[operator]
        return self._created(name, manifest)

    def _created(self, name: str, manifest: dict[str, object]) -> dict[str, object]:
        self.cluster.create_pod("ml", manifest)
        return next(each for each in self.cluster.list_pods() if each["metadata"]["name"] == name)  # type: ignore[index]

    def schedule(self, pod: dict[str, object], *nodes: str) -> str:
        """Filter and bind, as kube-scheduler does; return the bind's error."""
        metadata = pod["metadata"]
        answer = msgspec.json.decode(self.post("/v1/filter", {"Pod": pod, "Nodes": None, "NodeNames": list(nodes)}))
        if not answer["NodeNames"]:
            return "refused"
        bind = {
            "PodName": metadata["name"],  # type: ignore[index]
            "PodNamespace": metadata["namespace"],  # type: ignore[index]
            "PodUID": metadata["uid"],  # type: ignore[index]
            "Node": answer["NodeNames"][0],
        }
        return msgspec.json.decode(self.post("/v1/bind", bind))["Error"]


def pod_manifest(name: str, asks: dict[str, int]) -> dict[str, object]:
    limits = {PREFIX + row: str(amount) for row, amount in asks.items()}
    return {
        "metadata": {"name": name, "labels": {f"{PREFIX}managed": "true"}},
        "spec": {
            "schedulerName": "tangram-scheduler",
            "containers": [{"name": "main", "resources": {"limits": limits, "requests": limits}}],
        },
    }


@contextmanager
def staged(**settings: object) -> Iterator[Stage]:
    """Two nodes: ``a`` with a T4, ``b`` with an A100; the extender's log stays out of the commands' output."""
    set_up_logs("error")
    with ServedApiServer(SimulatedApiServer()) as api:
        cluster = Cluster(api.url)
        for name in ("a", "b"):
            amounts = {"cpu": "64", "memory": "256Gi"}
            cluster.create_node({"metadata": {"name": name}, "status": {"capacity": amounts, "allocatable": amounts}})
        extender = ExtenderThread(api.url, settings)
        with extender as (app, url):
            stage = Stage(url, api.url, app, cluster, extender.on_loop)
            wait_until_ready(url)
            stage.report("a", device("GPU-a", name="Tesla T4", compute_capability=(7, 5), total_mib=15_360))
            stage.report("b", device("GPU-b"))
            yield stage
        cluster.close()
    structlog.reset_defaults()


class ExtenderThread:
    """The store belongs to the thread that made it, so application and loop are made in one thread."""

    def __init__(
        self,
        api_url: str,
        settings: dict[str, object],
        host: str = "127.0.0.1",
        port: int = 0,
        tls: tuple[str | None, str | None] = (None, None),
    ) -> None:
        """``tls`` are the files of a certificate and its key."""
        self._tls = tls
        self._api_url = api_url
        self._settings = settings
        self._host = host
        self._socket = socket.create_server((host, port))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._up = threading.Event()

    def __enter__(self) -> tuple[Extender, str]:
        self._thread.start()
        assert self._up.wait(START_S)
        return self._app, f"http://{self._host}:{self._socket.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(START_S)
        self._socket.close()

    def on_loop(self, change: Callable[[Extender], None]) -> None:
        """Change the extender on its own loop, and wait until it is done."""

        async def changed() -> None:
            change(self._app)

        asyncio.run_coroutine_threadsafe(changed(), self._server.loop).result(START_S)

    def _run(self) -> None:
        kube = KubeClient.from_url(self._api_url)
        self._app = create_app(Settings(**self._settings), Surroundings(kube, kube))  # type: ignore[arg-type]
        certificate, key = self._tls
        self._server = _Server(
            uvicorn.Config(
                self._app,
                log_level="critical",
                lifespan="on",
                loop="asyncio",
                timeout_graceful_shutdown=1,
                ws="none",
                ssl_certfile=certificate,
                ssl_keyfile=key,
            )
        )
        self._server.is_up = self._up
        self._server.run([self._socket])


class _Server(uvicorn.Server):
    def __init__(self, configuration: uvicorn.Config) -> None:
        super().__init__(configuration)
        self.is_up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.loop = asyncio.get_running_loop()
        self.is_up.set()


def wait_until_ready(url: str) -> None:
    retries = urllib3.Retry(total=300, status_forcelist=(503,), backoff_factor=0.1, backoff_max=0.3)
    assert urllib3.request("GET", f"{url}/readyz", retries=retries).status == 200
