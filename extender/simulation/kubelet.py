"""The hollow part of every node, and the controllers behind the pods: pods run, end and go.

A bound pod becomes Running. When its time is over, a batch pod succeeds and is collected a little later; a service is
deleted while it runs, and is gone after its grace period. A pod that another hand deletes is let go likewise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor

import structlog

from extender.clock import Clock
from extender.errors import ExtenderError
from extender.simulation.cluster import Cluster
from extender.simulation.nodefit import SeenPod, read_spec

_LOG = structlog.get_logger(__name__)
_START_S = 0.3
_GRACE_S = 1
_COLLECT_S = 2.0
_SERVICES = "inference"


class Kubelet:
    """All nodes' kubelets in one. ``runs_s`` is asked how long a pod (namespace, name) is to run."""

    def __init__(
        self, cluster: Cluster, threads: ThreadPoolExecutor, clock: Clock, runs_s: Callable[[str, str], float]
    ) -> None:
        self._cluster = cluster
        self._threads = threads
        self._clock = clock
        self._runs_s = runs_s
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._leaving: set[str] = set()

    def on_pod(self, pod: SeenPod) -> None:
        """Begin the life of a pod that was bound, or end that of one whose deletion was asked for."""
        uid = pod.metadata.uid
        if pod.metadata.deletion_timestamp is not None and uid not in self._leaving:
            self._leaving.add(uid)
            self._begin(uid, self._let_go(pod))
        elif uid not in self._lives and read_spec(pod).node_name:
            self._begin(uid, self._live(pod))

    async def stop(self) -> None:
        """End every life where it stands."""
        tasks = list(self._lives.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, uid: str, life: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(life)
        before = self._lives.get(uid)
        if before is not None:
            before.cancel()
        self._lives[uid] = task
        task.add_done_callback(lambda done: self._ended(uid, done))

    def _ended(self, uid: str, task: asyncio.Task[None]) -> None:
        if self._lives.get(uid) is task:
            del self._lives[uid]
            self._leaving.discard(uid)
        if not task.cancelled() and task.exception() is not None:
            _LOG.warning("pod_life_broke", pod_uid=uid, error=str(task.exception()))

    async def _live(self, pod: SeenPod) -> None:
        namespace, name = pod.metadata.namespace, pod.metadata.name
        await self._clock.sleep(_START_S)
        if not await self._status(pod, "Running"):
            return
        await self._clock.sleep(self._runs_s(namespace, name))
        if namespace == _SERVICES:
            await self._delete(pod, _GRACE_S)
            await self._clock.sleep(_GRACE_S)
        else:
            await self._status(pod, "Succeeded")
            await self._clock.sleep(_COLLECT_S)
        await self._delete(pod, 0)

    async def _let_go(self, pod: SeenPod) -> None:
        await self._clock.sleep(_GRACE_S)
        await self._delete(pod, 0)

    async def _status(self, pod: SeenPod, phase: str) -> bool:
        metadata = pod.metadata
        return await self._call(
            lambda: self._cluster.patch_pod_status(metadata.namespace, metadata.name, {"phase": phase})
        )

    async def _delete(self, pod: SeenPod, grace_s: int) -> bool:
        metadata = pod.metadata
        return await self._call(lambda: self._cluster.delete_pod(metadata.namespace, metadata.name, grace_s))

    async def _call(self, call: Callable[[], bool]) -> bool:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except ExtenderError as problem:
            _LOG.warning("kubelet_call_failed", error=str(problem))
            return False
