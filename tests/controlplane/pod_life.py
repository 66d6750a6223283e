"""The lives of the pods on hollow nodes, one task each.

                admitted          run-seconds over
    bound  ──────────────▶ Running ──────────────▶ Succeeded
      │ over a total          │ deletion asked        │ deletion asked
      ▼                       ▼                       ▼
    Failed                 stop-seconds, at most the grace period ──▶ Succeeded ──▶ deleted

A pod holds its part of the node's totals from its admission until its phase is terminal or it is gone.
"""

import asyncio
from decimal import Decimal

from tests.controlplane.api import Json
from tests.controlplane.async_api import AsyncApi, NotThere
from tests.controlplane.kubelet import (
    RUN_SECONDS,
    STOP_SECONDS,
    effective_requests,
    ended_status,
    is_terminal,
    rejected_status,
    running_status,
    seconds,
    shortage,
)


class _Life:
    """One pod as its kubelet knows it."""

    def __init__(self, pod: Json, address: str) -> None:
        self.pod = pod
        self.address = address
        self.requests: dict[str, Decimal] = effective_requests(pod["spec"])
        self.terminal = is_terminal(pod)
        self.deletion_asked = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    @property
    def path(self) -> str:
        about = self.pod["metadata"]
        return f"/api/v1/namespaces/{about['namespace']}/pods/{about['name']}"

    @property
    def uid(self) -> str:
        return str(self.pod["metadata"]["uid"])


class PodLives:
    """All pods on the hollow nodes, by UID; used from the event loop only."""

    def __init__(self, api: AsyncApi, group: asyncio.TaskGroup) -> None:
        self._api = api
        self._group = group
        self._lives: dict[str, _Life] = {}
        self._addresses = 0

    def see(self, kind: str, pod: Json, node: Json | None) -> None:
        """Take note of a change of one bound pod; `node` is its Node as known now, None when it is not one of ours."""
        uid = pod["metadata"]["uid"]
        if kind == "DELETED":
            self._forget(uid)
        elif node is not None:
            life = self._lives.get(uid) or self._admit(pod, node)
            life.pod = pod
            if "deletionTimestamp" in pod["metadata"]:
                life.deletion_asked.set()

    def abandon(self) -> None:
        """Stop looking after every pod, as kubelets that are killed do."""
        for uid in list(self._lives):
            self._forget(uid)

    def _forget(self, uid: str) -> None:
        life = self._lives.pop(uid, None)
        if life is not None and life.task is not None:
            life.task.cancel()

    def _admit(self, pod: Json, node: Json) -> _Life:
        self._addresses += 1
        life = _Life(pod, f"10.244.{self._addresses // 250 % 250}.{self._addresses % 250 + 1}")
        name = pod["spec"]["nodeName"]
        others = [
            each.requests for each in self._lives.values() if each.pod["spec"]["nodeName"] == name and not each.terminal
        ]
        running = life.terminal or pod.get("status", {}).get("phase") == "Running"
        short = None if running else shortage(life.requests, others, node["status"].get("allocatable", {}))
        life.terminal = life.terminal or short is not None
        self._lives[life.uid] = life
        life.task = self._group.create_task(self._live(life, short))
        return life

    async def _live(self, life: _Life, short: str | None) -> None:
        try:
            if short is not None:
                await self._write(life, rejected_status(short))
            elif not life.terminal:
                await self._run(life)
            await life.deletion_asked.wait()
            await self._api.delete(life.path, uid=life.uid)
        except NotThere:
            return

    async def _run(self, life: _Life) -> None:
        if life.pod.get("status", {}).get("phase") != "Running":
            await self._write(life, running_status(life.pod, life.address))
        try:
            await asyncio.wait_for(life.deletion_asked.wait(), seconds(life.pod, RUN_SECONDS))
        except TimeoutError:
            pass
        else:
            grace = float(life.pod["metadata"].get("deletionGracePeriodSeconds", 0))
            await asyncio.sleep(min(seconds(life.pod, STOP_SECONDS) or 0.0, grace))
        await self._write(life, ended_status(life.pod))
        life.terminal = True

    async def _write(self, life: _Life, status: Json) -> None:
        change = {"metadata": {"uid": life.uid}, "status": status}
        await self._api.patch(f"{life.path}/status", change, strategic=True)
