"""Hollow kubelets: nodes that do everything a kubelet does towards the API server, and run nothing.

    with HollowNodes(plane.endpoint(), [HollowNode("gpu-a"), HollowNode("gpu-b")]) as nodes:
        ...
        nodes.reregister("gpu-a")  # the extended resources drop to 0, as after a kubelet's restart

A pod that is bound to one of the nodes is admitted against the node's totals (or fails with OutOf<resource>), runs,
ends when its annotation says so, and is removed once its deletion was asked for and its containers have stopped.
`kubelet` holds what is written, `pod_life` when; this module looks after the Nodes. One thread with one event loop
serves all of them.
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from types import TracebackType
from typing import Self

import httpx2

from tests.controlplane.access import Endpoint
from tests.controlplane.api import Json
from tests.controlplane.async_api import AsyncApi, NotThere
from tests.controlplane.kubelet import (
    HollowNode,
    is_extended,
    mirrored_allocatable,
    node_manifest,
    ready_condition,
)
from tests.controlplane.pod_life import PodLives

_START_S = 30.0
_HEARTBEAT_S = 10.0
_CALL_S = 10.0


class HollowNodes:
    """All hollow nodes of one cluster; methods may be called from any thread once it is started.

    `status_period_s` is how often a kubelet looks at its own Node (real ones: every 10 s).
    """

    def __init__(self, endpoint: Endpoint, nodes: Iterable[HollowNode] = (), *, status_period_s: float = 1.0) -> None:
        self._endpoint = endpoint
        self._initial = tuple(nodes)
        self._status_period_s = status_period_s
        self._thread = threading.Thread(target=self._run, name="hollow-nodes", daemon=True)
        self._started = threading.Event()
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Register the nodes and return when all are Ready."""
        self._thread.start()
        if not self._started.wait(_START_S):
            message = f"hollow nodes are not registered after {_START_S:.0f} s"
            raise TimeoutError(message)
        self.check()

    def stop(self) -> None:
        """Stop all kubelets at once; Nodes and pods stay as they are. Raises what went wrong meanwhile."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join(_CALL_S)
        self.check()

    def check(self) -> None:
        """Raise RuntimeError when the kubelets ended by a mistake of their own."""
        if self._failure is not None:
            message = "the hollow kubelets ended"
            raise RuntimeError(message) from self._failure

    def add(self, node: HollowNode) -> None:
        """Register one more node."""
        self._call(self._register(node))

    def remove(self, name: str) -> None:
        """Take a node away as if its machine were gone: the Node is deleted, its pods are left to the cluster."""
        self._call(self._remove(name))

    def reregister(self, name: str) -> None:
        """Do what kubelet does when it registers anew: every extended resource is 0 until somebody writes it again."""
        self._call(self._zero(name))

    def _call(self, action: Coroutine[None, None, None]) -> None:
        self.check()
        asyncio.run_coroutine_threadsafe(action, self._loop).result(_CALL_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as failure:  # noqa: BLE001 - handed to the thread that asks
            self._failure = failure
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._nodes: dict[str, Json] = {}
        async with AsyncApi(self._endpoint) as self._api, asyncio.TaskGroup() as group:
            self._pods = PodLives(self._api, group)
            await asyncio.gather(*(self._register(node) for node in self._initial))
            tasks = [
                group.create_task(self._follow_nodes()),
                group.create_task(self._follow_pods()),
                group.create_task(self._sync_statuses()),
            ]
            self._started.set()
            await self._end.wait()
            for task in tasks:
                task.cancel()
            self._pods.abandon()

    async def _register(self, node: HollowNode) -> None:
        manifest = node_manifest(node)
        await self._api.create_or_take("/api/v1/nodes", manifest)
        path = f"/api/v1/nodes/{node.name}"
        status = {key: manifest["status"][key] for key in ("capacity", "allocatable", "conditions")}
        # Admission adds the not-ready taint at creation; the node lifecycle controller, if any, would take it away.
        await self._api.patch(path, {"spec": {"taints": list(node.taints) or None}})
        self._nodes[node.name] = await self._api.patch(f"{path}/status", {"status": status}, strategic=True)

    async def _remove(self, name: str) -> None:
        self._nodes.pop(name)
        await self._api.delete(f"/api/v1/nodes/{name}")

    async def _zero(self, name: str) -> None:
        zeros = {resource: "0" for resource in self._nodes[name]["status"]["capacity"] if is_extended(resource)}
        status = {"capacity": zeros, "allocatable": zeros}
        self._nodes[name] = await self._api.patch(f"/api/v1/nodes/{name}/status", {"status": status})

    async def _follow_nodes(self) -> None:
        async for kind, node in self._api.follow("/api/v1/nodes"):
            name = node["metadata"]["name"]
            if kind != "DELETED" and name in self._nodes:
                self._nodes[name] = node

    async def _follow_pods(self) -> None:
        async for kind, pod in self._api.follow("/api/v1/pods", field_selector="spec.nodeName!="):
            node = self._nodes.get(pod["spec"]["nodeName"])
            if node is not None or kind == "DELETED":
                self._pods.see(kind, pod, node)

    async def _sync_statuses(self) -> None:
        last_beat = self._loop.time()
        while True:
            await asyncio.sleep(self._status_period_s)
            beat = self._loop.time() - last_beat >= _HEARTBEAT_S
            if beat:
                last_beat = self._loop.time()
            await asyncio.gather(*(self._sync_status(name, beat=beat) for name in list(self._nodes)))

    async def _sync_status(self, name: str, *, beat: bool) -> None:
        changes = mirrored_allocatable(self._nodes[name]["status"])
        status: Json = {"allocatable": changes} if changes else {}
        if beat:
            status["conditions"] = [ready_condition()]
        if not status:
            return
        try:
            node = await self._api.patch(f"/api/v1/nodes/{name}/status", {"status": status}, strategic=True)
        except (NotThere, httpx2.TransportError):
            return
        if name in self._nodes:
            self._nodes[name] = node
