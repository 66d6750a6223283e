"""The extender's verbs as kube-scheduler calls them: over HTTP, with the time each takes.

What does not parse as Go's structs would is an error, as it is for the scheduler: scores are integers, only status 200
counts, keys are spelled as Go's fields. Calls block, so they run in worker threads.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
import urllib3

from extender.errors import ExtenderError
from extender.simulation.nodefit import SeenPod
from extender.transport import Limits, Transport

HTTP_TIMEOUT_S = 5.0
_SAMPLES_KEPT = 20_000
_AnswerT = TypeVar("_AnswerT")


class VerbFailed(ExtenderError):
    """An extender call failed as a whole: no answer, not 200, not readable, or ``Error`` set."""

    code = "VerbFailed"


class FilterAnswer(msgspec.Struct, frozen=True):
    """``ExtenderFilterResult``, as far as a cache-capable extender fills it."""

    names: list[str] | None = msgspec.field(name="NodeNames", default=None)
    failed: dict[str, str] | None = msgspec.field(name="FailedNodes", default=None)
    unresolvable: dict[str, str] | None = msgspec.field(name="FailedAndUnresolvableNodes", default=None)
    error: str | None = msgspec.field(name="Error", default=None)

    def reasons(self) -> dict[str, int]:
        """Return how many nodes were refused for each reason."""
        counts: dict[str, int] = {}
        for reason in ({**(self.failed or {}), **(self.unresolvable or {})}).values():
            counts[reason] = counts.get(reason, 0) + 1
        return counts


class _HostPriority(msgspec.Struct, frozen=True):
    host: str = msgspec.field(name="Host")
    score: int = msgspec.field(name="Score")


class _BindingResult(msgspec.Struct, frozen=True):
    error: str | None = msgspec.field(name="Error", default=None)


_FILTER = msgspec.json.Decoder(FilterAnswer)
_PRIORITIES = msgspec.json.Decoder(list[_HostPriority])
_BINDING = msgspec.json.Decoder(_BindingResult)
_ENCODER = msgspec.json.Encoder()


@dataclass(slots=True)
class Timings:
    """Milliseconds of the newest calls of each verb; bounded."""

    samples: dict[str, deque[float]] = field(default_factory=dict)

    def note(self, verb: str, ms: float) -> None:
        """Remember one call."""
        self.samples.setdefault(verb, deque(maxlen=_SAMPLES_KEPT)).append(ms)

    def percentile(self, verb: str, share: float) -> float | None:
        """Return the value that this share (0..1) of the calls stays at or below; None without calls."""
        ordered = sorted(self.samples.get(verb, ()))
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else None


class ExtenderVerbs:
    """One extender at a base URL, called from several threads."""

    def __init__(self, url: str, connections: int = 16) -> None:
        self.timings = Timings()
        pool = urllib3.PoolManager(num_pools=2, maxsize=connections, block=False)
        limits = Limits(connect_timeout_s=HTTP_TIMEOUT_S, read_timeout_s=HTTP_TIMEOUT_S)
        self._transport = Transport(pool, url, dict, limits)

    def filter(self, pod: SeenPod, names: Sequence[str]) -> FilterAnswer:
        """Return filter's answer; raise VerbFailed, also where it names nodes that were not asked about."""
        answer = self._call("filter", _nodes_args(pod, names), _FILTER)
        if answer.error:
            raise VerbFailed(answer.error)
        strangers = set(answer.names or ()) - set(names)
        if strangers:
            raise VerbFailed(f"filter passed nodes that it was not asked about: {sorted(strangers)[:3]}")
        return answer

    def prioritize(self, pod: SeenPod, names: Sequence[str]) -> dict[str, int]:
        """Return each node's score, 0 for those left out; a failed call counts as no opinion, as in kube-scheduler."""
        scores = dict.fromkeys(names, 0)
        try:
            answer = self._call("prioritize", _nodes_args(pod, names), _PRIORITIES)
        except VerbFailed:
            return scores
        for entry in answer:
            if entry.host in scores:
                scores[entry.host] += entry.score
        return scores

    def bind(self, pod: SeenPod, node: str) -> None:
        """Ask for the pod to be bound; raise VerbFailed with the extender's words where it was not."""
        metadata = pod.metadata
        args = {"PodName": metadata.name, "PodNamespace": metadata.namespace, "PodUID": metadata.uid, "Node": node}
        answer = self._call("bind", _ENCODER.encode(args), _BINDING)
        if answer.error:
            raise VerbFailed(answer.error)

    def close(self) -> None:
        """Close idle connections."""
        self._transport.close()

    def _call(self, verb: str, body: bytes, decoder: msgspec.json.Decoder[_AnswerT]) -> _AnswerT:
        began = time.perf_counter()
        try:
            content = self._transport.send("POST", f"/v1/{verb}", body)
        except ExtenderError as problem:
            raise VerbFailed(f"{verb}: {problem}") from problem
        finally:
            self.timings.note(verb, (time.perf_counter() - began) * 1000)
        try:
            return decoder.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise VerbFailed(f"{verb}: answer cannot be read: {problem}") from problem


def _nodes_args(pod: SeenPod, names: Sequence[str]) -> bytes:
    return _ENCODER.encode({"Pod": pod, "Nodes": None, "NodeNames": list(names)})
