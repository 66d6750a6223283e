"""Which pods wait for a node, and since when: a bounded list beside the store, which keeps only what is placed."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from extender.holdings import ObservedPod, PodIdentity
from scoring.request import ContainerAsk, PodRequest

_KEPT = 20_000
_MESSAGE_LENGTH = 400


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pod without a node; ``since`` is on the extender's clock, when it was first seen.

    ``asks`` is what it asks in words, ``message`` why kube-scheduler found no node in its own, empty before it tried.
    """

    pod: PodIdentity
    since: float
    asks: str
    message: str = ""


class WaitingPods:
    """Pods that ask for devices and have no node yet, oldest first; bounded, later ones are left out."""

    def __init__(self) -> None:
        self._pods: OrderedDict[str, Waiting] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pods)

    def on_pod(self, seen: ObservedPod, now: float) -> None:
        """Take in what the watch says of a pod."""
        asks = seen.request is None or seen.request.asks_gpu
        if seen.node or seen.is_over or seen.is_terminating or not asks:
            self._pods.pop(seen.pod.uid, None)
        elif seen.pod.uid in self._pods:
            before = self._pods[seen.pod.uid]
            self._pods[seen.pod.uid] = replace(before, message=_shortened(seen.waits_for) or before.message)
        elif len(self._pods) < _KEPT:
            words = in_words(seen.request)
            self._pods[seen.pod.uid] = Waiting(seen.pod, now, words, _shortened(seen.waits_for))

    def on_gone(self, uid: str) -> None:
        """Let go of a pod that is gone."""
        self._pods.pop(uid, None)

    def oldest(self, limit: int) -> list[Waiting]:
        """Return up to ``limit`` pods, those that wait longest first."""
        return [waiting for waiting, _ in zip(self._pods.values(), range(limit), strict=False)]


def _shortened(message: str) -> str:
    """Return kube-scheduler's message without its fixed beginning, cut where it grows long."""
    text = message.partition("nodes are available: ")[2] or message
    return text if len(text) <= _MESSAGE_LENGTH else text[: _MESSAGE_LENGTH - 1] + "…"


def in_words(request: PodRequest | None) -> str:
    """Return what a pod asks, short enough for a line: devices, amounts of each, conditions."""
    if request is None:
        return "asks what cannot be understood"
    asks = [_ask_in_words(ask) for ask in request.containers]
    asks += [f"{ask.count} of {ask.resource}" for ask in request.plugin]
    conditions = [f"{key.removeprefix('gpu-')} {text}" for key, text in request.conditions.describe()]
    return "; ".join([" + ".join(asks), *conditions])


def _ask_in_words(ask: ContainerAsk) -> str:
    if ask.is_whole:
        return "a whole GPU" if ask.count == 1 else f"{ask.count} whole GPUs"
    compute = f"{ask.compute_milli / 10:g} %" if ask.compute_milli is not None else ""
    memory = f"{ask.memory_mib} MiB" if ask.memory_mib is not None else ""
    amounts = " and ".join(part for part in (compute, memory) if part)
    return f"{amounts} of a GPU" if ask.count == 1 else f"{amounts} of each of {ask.count} GPUs"
