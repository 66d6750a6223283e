"""The API server's part in binding, in memory: preconditions, merging of annotations, and answers that get lost.

Pods live in a dictionary; what a test wants to go wrong is put into ``faults``, used one a Binding, in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

import msgspec

from extender.errors import KubeUnreachable
from extender.kube import BindOutcome, BindStatus, EventNote, Lease, TokenIdentity
from extender.objects import Pod


class Fault(StrEnum):
    """What goes wrong with one Binding."""

    NONE = "none"
    LOST_BEFORE = "lost before it was written"
    LOST_AFTER = "written, answer lost"
    CONFLICT = "409 without a reason"


class FakeKube:
    """``Kube`` over a dictionary of pods; ``bindings`` counts what was written."""

    def __init__(self, *pods: Pod, watch: Callable[[Pod], None] = lambda _: None) -> None:
        self.pods: dict[tuple[str, str], Pod] = {}
        self.faults: deque[Fault] = deque()
        self.bindings: list[tuple[str, str, dict[str, str]]] = []
        self.posted = 0
        self.totals: dict[str, dict[str, str | None]] = {}
        self.annotations: list[tuple[str, str, str | None]] = []
        self.events: list[EventNote] = []
        self.refuse_reads = 0
        self.refuse_writes = 0
        self._watch = watch
        for pod in pods:
            self.add(pod)

    def add(self, pod: Pod) -> None:
        self.pods[pod.metadata.namespace, pod.metadata.name] = pod

    def remove(self, name: str, namespace: str = "default") -> None:
        del self.pods[namespace, name]

    async def get_pod(self, namespace: str, name: str) -> Pod | None:
        await asyncio.sleep(0)
        if self.refuse_reads:
            self.refuse_reads -= 1
            raise KubeUnreachable("no connection")
        return self.pods.get((namespace, name))

    async def bind(
        self,
        namespace: str,
        name: str,
        uid: str,
        node: str,
        annotations: Mapping[str, str],
        deadline_s: float | None = None,
        resource_version: str = "",
    ) -> BindOutcome:
        self.posted += 1
        await asyncio.sleep(0)
        fault = self.faults.popleft() if self.faults else Fault.NONE
        if fault is Fault.LOST_BEFORE:
            return BindOutcome(BindStatus.UNKNOWN, None, "connection reset")
        if fault is Fault.CONFLICT:
            return BindOutcome(BindStatus.REFUSED, 409, "conflict")
        pod = self.pods.get((namespace, name))
        if pod is not None and resource_version not in ("", pod.metadata.resource_version):
            return BindOutcome(BindStatus.REFUSED, 409, "the object has been modified")
        outcome = self._write(namespace, name, uid, node, dict(annotations))
        return BindOutcome(BindStatus.UNKNOWN, None, "connection reset") if fault is Fault.LOST_AFTER else outcome

    def _write(self, namespace: str, name: str, uid: str, node: str, annotations: dict[str, str]) -> BindOutcome:
        pod = self.pods.get((namespace, name))
        if pod is None:
            return BindOutcome(BindStatus.REFUSED, 404, "not found")
        if pod.metadata.uid != uid or pod.spec.node_name or pod.metadata.deletion_timestamp:
            return BindOutcome(BindStatus.REFUSED, 409, "precondition")
        metadata = msgspec.structs.replace(pod.metadata, annotations={**pod.annotations, **annotations})
        bound = msgspec.structs.replace(pod, metadata=metadata, spec=msgspec.structs.replace(pod.spec, node_name=node))
        self.pods[namespace, name] = bound
        self.bindings.append((name, node, annotations))
        self._watch(bound)
        return BindOutcome(BindStatus.BOUND, 201)

    async def patch_node_status(self, node: str, totals: Mapping[str, str | None]) -> None:
        await asyncio.sleep(0)
        self._maybe_refuse()
        self.totals.setdefault(node, {}).update(totals)

    async def patch_node_annotation(self, node: str, key: str, value: str | None) -> None:
        await asyncio.sleep(0)
        self._maybe_refuse()
        self.annotations.append((node, key, value))

    def _maybe_refuse(self) -> None:
        if self.refuse_writes:
            self.refuse_writes -= 1
            raise KubeUnreachable("no connection")

    async def create_event(self, note: EventNote) -> None:
        await asyncio.sleep(0)
        self._maybe_refuse()
        self.events.append(note)

    async def token_review(self, token: str, audiences: Sequence[str]) -> TokenIdentity | None:
        raise NotImplementedError

    async def get_lease(self, namespace: str, name: str) -> Lease | None:
        raise NotImplementedError

    async def create_lease(self, lease: Lease) -> Lease:
        raise NotImplementedError

    async def update_lease(self, lease: Lease) -> Lease:
        raise NotImplementedError
