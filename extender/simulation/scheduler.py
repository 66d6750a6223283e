"""An in-memory kube-scheduler: does to an extender what the real one does (extender-protocol: cycles, binding, races).

::

    serial, one pod at a time:   in-tree fit -> POST filter -> POST prioritize (two or more nodes) -> draw among best
                                 -> assume in its own cache
    concurrent with the next:    POST bind; on an error forget, wake everybody, try again after a back-off

Pods that ask for nothing the extender manages go past it: in-tree fit, the fullest node, a plain Binding. All state is
touched on the event loop only; calls block in worker threads.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import structlog

from extender.changes import ObjectKey
from extender.clock import Clock
from extender.errors import ExtenderError
from extender.kube import BindStatus, KubeClient
from extender.simulation.backlog import Backlog
from extender.simulation.cluster import Cluster
from extender.simulation.nodefit import Amounts, NodeFit, SeenNode, SeenPod, amounts_of, is_managed, read_spec
from extender.simulation.verbs import ExtenderVerbs, VerbFailed
from scoring.errors import InvalidRequest

_LOG = structlog.get_logger(__name__)
_FINISHED = ("Succeeded", "Failed")
_IDLE_S = 0.5
_T = TypeVar("_T")


@dataclass(slots=True)
class Counts:
    """What the scheduler did so far; ``conflicts`` are binds that the extender refused."""

    tries: int = 0
    bound: int = 0
    conflicts: int = 0
    errors: int = 0


@dataclass(slots=True)
class _Waiting:
    """A pod without a node, what it asks, and why it waits (empty before its first try)."""

    pod: SeenPod
    amounts: Amounts
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Outlets:
    """Whom the scheduler calls, and the threads that the calls block."""

    verbs: ExtenderVerbs
    kube: KubeClient
    cluster: Cluster
    threads: ThreadPoolExecutor


class Scheduler:
    """The scheduler of one profile; pods of another ``schedulerName`` are counted on their nodes and left alone."""

    def __init__(self, outlets: Outlets, clock: Clock, profile: str, seed: int = 0) -> None:
        self.counts = Counts()
        self.fit = NodeFit()
        self._outlets = outlets
        self._clock = clock
        self._profile = profile
        self._draw = random.Random(seed)  # noqa: S311 - draws, no secrets
        self._backlog = Backlog()
        self._waiting: dict[str, _Waiting] = {}
        self._assumed: set[str] = set()
        self._changes = 0
        self._news = asyncio.Event()
        self._binds: set[asyncio.Task[None]] = set()

    def waiting(self) -> dict[str, str]:
        """Return why each pod without a node waits, by ``namespace/name``."""
        return {
            f"{each.pod.metadata.namespace}/{each.pod.metadata.name}": each.reason for each in self._waiting.values()
        }

    async def run(self) -> None:
        """Schedule until cancelled; binds under way are then awaited."""
        try:
            while True:
                if not await self.step():
                    await self._idle()
        finally:
            await self.settle()

    async def step(self) -> bool:
        """Try the next pod, its bind left to itself; return False where nobody is ready."""
        uid = self._backlog.pop(self._clock.now())
        if uid is not None and uid in self._waiting:
            await self._try(uid, self._waiting[uid])
        return uid is not None

    async def settle(self) -> None:
        """Wait for the binds under way."""
        await asyncio.gather(*self._binds, return_exceptions=True)

    # What the watch tells.

    def on_pod(self, pod: SeenPod) -> None:
        """Take in a pod that is new or changed."""
        uid, spec = pod.metadata.uid, read_spec(pod)
        if pod.status.phase in _FINISHED:
            self.on_pod_gone(ObjectKey.of(pod.metadata))
        elif spec.node_name:
            self._leave_line(uid)
            self.fit.place(uid, spec.node_name, _amounts(pod))
        elif (
            spec.scheduler_name == self._profile
            and pod.metadata.deletion_timestamp is None
            and uid not in self._assumed
        ):
            known = self._waiting.get(uid)
            self._waiting[uid] = _Waiting(pod, _amounts(pod), known.reason if known else "")
            self._backlog.add(uid, self._clock.now(), spec.priority or 0)
            self._news.set()

    def on_pod_gone(self, key: ObjectKey) -> None:
        """Free what a pod took; those that wait try again."""
        self._leave_line(key.uid)
        if self.fit.remove(key.uid):
            self._wake()

    def on_node(self, node: SeenNode) -> None:
        """Take in a node that is new or changed; any change may let a waiting pod in."""
        self.fit.set_node(node.metadata.name, node.status.allocatable or {})
        self._wake()

    def on_node_gone(self, key: ObjectKey) -> None:
        """Forget a node."""
        self.fit.remove_node(key.name)

    # One pod.

    async def _try(self, uid: str, waiting: _Waiting) -> None:
        self.counts.tries += 1
        changes = self._changes
        try:
            node = await self._choose(waiting)
        except VerbFailed as problem:
            self.counts.errors += 1
            await self._refuse(uid, waiting, "SchedulerError", str(problem))
            self._backlog.retry(uid, self._clock.now())
            return
        if uid not in self._waiting:
            return  # It went while it was looked at.
        if node is None:
            if changes == self._changes:
                self._backlog.park(uid, self._clock.now())
            else:
                self._backlog.retry(uid, self._clock.now())
            return
        self._assume(uid, waiting, node)

    async def _choose(self, waiting: _Waiting) -> str | None:
        """Return the node to take, None where there is none; raise VerbFailed."""
        pod, amounts = waiting.pod, waiting.amounts
        names, reasons = self.fit.fitting(amounts)
        if names and is_managed(amounts):
            verbs = self._outlets.verbs
            answer = await self._call(lambda: verbs.filter(pod, names))
            names = answer.names or []
            reasons = _added(reasons, answer.reasons())
            if len(names) > 1:
                offered = names
                scores = await self._call(lambda: verbs.prioritize(pod, offered))
                best = max(scores.values())
                names = [name for name in offered if scores[name] == best]
        elif names:
            names = self.fit.fullest(names)
        if names:
            return self._draw.choice(names)
        await self._refuse(pod.metadata.uid, waiting, "Unschedulable", _sentence(reasons, len(self.fit)))
        return None

    def _assume(self, uid: str, waiting: _Waiting, node: str) -> None:
        self.fit.place(uid, node, waiting.amounts)
        self._assumed.add(uid)
        task = asyncio.create_task(self._bind(uid, waiting, node))
        self._binds.add(task)
        task.add_done_callback(self._binds.discard)

    async def _bind(self, uid: str, waiting: _Waiting, node: str) -> None:
        pod = waiting.pod
        try:
            if is_managed(waiting.amounts):
                await self._call(lambda: self._outlets.verbs.bind(pod, node))
            else:
                await self._bind_plainly(pod, node)
        except VerbFailed as problem:
            self.counts.conflicts += 1
            self._assumed.discard(uid)
            if uid in self._waiting:
                self.fit.remove(uid)
                self._backlog.retry(uid, self._clock.now())
                self._wake()
                await self._refuse(uid, waiting, "SchedulerError", str(problem))
        else:
            self.counts.bound += 1
            self._assumed.discard(uid)
            self._leave_line(uid)

    async def _bind_plainly(self, pod: SeenPod, node: str) -> None:
        metadata = pod.metadata
        outcome = await self._outlets.kube.bind(metadata.namespace, metadata.name, metadata.uid, node, {})
        if outcome.status is not BindStatus.BOUND:
            raise VerbFailed(f"binding: {outcome.message}")

    async def _refuse(self, uid: str, waiting: _Waiting, word: str, reason: str) -> None:
        """Tell the pod why it waits, where that is news."""
        if waiting.reason == reason or uid not in self._waiting:
            return
        waiting.reason = reason
        condition = {"type": "PodScheduled", "status": "False", "reason": word, "message": reason}
        metadata, cluster = waiting.pod.metadata, self._outlets.cluster
        try:
            await self._call(
                lambda: cluster.patch_pod_status(metadata.namespace, metadata.name, {"conditions": [condition]})
            )
        except ExtenderError as problem:
            _LOG.warning("condition_not_written", pod_uid=uid, error=str(problem))

    # Inside.

    async def _idle(self) -> None:
        self._news.clear()
        wait_s = min(max(self._backlog.next_s() - self._clock.now(), 0.0), _IDLE_S)
        try:
            async with asyncio.timeout(wait_s):  # wait_for loses a cancellation that comes together with news
                await self._news.wait()
        except TimeoutError:
            return

    def _leave_line(self, uid: str) -> None:
        self._backlog.discard(uid)
        self._waiting.pop(uid, None)

    def _wake(self) -> None:
        self._changes += 1
        self._backlog.wake(self._clock.now())
        self._news.set()

    async def _call(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._outlets.threads, call)


def _amounts(pod: SeenPod) -> Amounts:
    try:
        return amounts_of(read_spec(pod))
    except InvalidRequest as problem:
        _LOG.warning("pod_not_counted", pod_uid=pod.metadata.uid, error=str(problem))
        return {}


def _added(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    return {key: first.get(key, 0) + second.get(key, 0) for key in {**first, **second}}


def _sentence(reasons: Mapping[str, int], total: int) -> str:
    """Return reasons as kube-scheduler words them: most nodes first; a node may count for several."""
    counted = sorted(reasons.items(), key=lambda entry: (-entry[1], entry[0]))
    return f"0/{total} nodes are available: " + ", ".join(f"{count} {reason}" for reason, count in counted) + "."
