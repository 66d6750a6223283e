"""An extender in one process with its API server in memory and its HTTP spoken without a socket."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2
import msgspec

from extender.app import Extender, Surroundings, create_app
from extender.objects import Pod
from extender.observing import observe_pod
from extender.settings import Settings
from node_agent.report import Device, Report
from tests.support.builders import PREFIX, node_facts, report
from tests.support.clock import ManualClock
from tests.support.kube import FakeKube


@dataclass(slots=True)
class Harness:
    app: Extender
    kube: FakeKube
    clock: ManualClock
    http: httpx2.AsyncClient

    @property
    def store(self):
        return self.app.services.store

    async def post(self, path: str, body: object) -> httpx2.Response:
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return await self.http.post(path, content=content)

    async def filter(self, pod: Pod, names: Sequence[str]) -> dict[str, Any]:
        response = await self.post("/v1/filter", {"Pod": as_json(pod), "Nodes": None, "NodeNames": list(names)})
        assert response.status_code == 200
        return response.json()

    async def prioritize(self, pod: Pod, names: Sequence[str]) -> dict[str, int]:
        response = await self.post("/v1/prioritize", {"Pod": as_json(pod), "Nodes": None, "NodeNames": list(names)})
        assert response.status_code == 200
        return {entry["Host"]: entry["Score"] for entry in response.json()}

    async def bind(self, pod: Pod, node: str, uid: str | None = None) -> str:
        metadata = pod.metadata
        body = {
            "PodName": metadata.name,
            "PodNamespace": metadata.namespace,
            "PodUID": uid or metadata.uid,
            "Node": node,
        }
        response = await self.post("/v1/bind", body)
        assert response.status_code == 200
        return response.json()["Error"]

    async def report(self, body: Report | bytes) -> httpx2.Response:
        return await self.post("/v1/reports", body if isinstance(body, bytes) else msgspec.json.encode(body))

    async def run(self, pod: Pod, names: Sequence[str]) -> str:
        """Do what kube-scheduler does for one pod; return the node it was bound to, or an empty string."""
        self.kube.add(pod)
        answer = await self.filter(pod, names)
        passed = answer["NodeNames"]
        if not passed:
            return ""
        if len(passed) > 1:
            scores = await self.prioritize(pod, passed)
            passed = [max(scores, key=lambda name: scores[name])]
        return "" if await self.bind(pod, passed[0]) else passed[0]

    def delete(self, pod: Pod) -> None:
        """Let a pod be gone, and the watch tell it."""
        self.kube.remove(pod.metadata.name, pod.metadata.namespace)
        self.store.release(pod.metadata.uid)


def as_json(pod: Pod) -> Any:
    return msgspec.to_builtins(pod)


def harness(nodes: dict[str, Iterable[Device]] | None = None, *, listed: bool = True, **settings: object) -> Harness:
    """Return an extender whose lists are in and whose nodes have reported."""
    clock = ManualClock()
    kube = FakeKube()
    app = create_app(Settings(**settings), Surroundings(kube, None, clock))  # type: ignore[arg-type]
    kube._watch = lambda pod: app.services.store.set_pod(observe_pod(pod, PREFIX))
    for name in nodes or {}:
        app.node_handler()._on_node(node_facts(name))
    if listed:
        app.node_handler().on_synced()
        app.pod_handler().on_synced()
    for name, held in (nodes or {}).items():
        app.services.store.apply_report(report(name, *held), clock.now())
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://extender")
    return Harness(app, kube, clock, http)
