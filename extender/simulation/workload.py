"""The trace's pods as a workload: what each asks in Tangram's words, when it arrives and how long it runs.

Shapes are the trace's own (cards, share of a card, CPU, memory, accepted models). Time is not: 150 days are squeezed
into a short run, so arrivals keep their order and durations their ratios, within limits. What the trace leaves open is
decided here, in one place:

- A share of a card is compute and memory alike. Latency-sensitive pods name both (memory as that part of a 16 GiB card,
  the trace's most common size), others name compute only, and their memory follows the device that is chosen.
- Small shares name memory only. They take a MIG instance as well; latency-sensitive ones of any model want one.
- Models of the trace become products of the catalogue; G2 and G3 are undisclosed and stand for Ada and for Hopper.
- The trace's cluster has nothing older than Pascal; its latency-sensitive pods without a model ask for that.
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from extender.simulation.trace import WHOLE_MILLI, TracePod

PREFIX = "tangram.dev/"
SCHEDULER_NAME = "tangram"
CONTAINER = "main"

_CARD_MIB = 16_384
_SMALL_MILLI = 320
_MILLI_PER_PERCENT = 10
_NAMESPACES = {"LS": "inference", "BE": "batch", "Burstable": "research", "Guaranteed": "research"}
_ARCHITECTURES = {("G2",): "ada", ("G3",): ">=hopper", ("V100M16", "V100M32"): "volta"}
_PRODUCTS = {
    "P100": "P100*",
    "V100M16": "V100*",
    "V100M32": "V100*-32GB",
    "T4": "T4",
    "A10": "A10",
    "G2": "L4, L40S",
    "G3": "H100*, H200*, B200",
}


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod to create: at this second of the run, to run for so many seconds once it is bound."""

    at_s: float
    runs_s: float
    namespace: str
    name: str
    manifest: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Tempo:
    """How time is squeezed.

    ``typical_s``    what the trace's median duration becomes
    ``least_s``, ``most_s``   limits of every duration
    ``fill_s``       by then ``load`` times the fleet's devices have been asked for; later pods replace those that end
    ``load``         offered load in devices, as a multiple of those that exist
    """

    typical_s: float = 8.0
    least_s: float = 3.0
    most_s: float = 40.0
    fill_s: float = 10.0
    load: float = 1.3


def arrivals(pods: Sequence[TracePod], devices: int, tempo: Tempo, seed: int) -> Iterator[Arrival]:
    """Yield arrivals without end, in order of time: the trace from a random place on, and over again.

    Equal arguments give equal arrivals. While the fleet fills, pods come at least at the rate that brings ``load``
    within ``fill_s``; then at the rate that keeps it there (Little's law: load = rate x duration x share).
    """
    draw = random.Random(seed)  # noqa: S311 - draws, no secrets
    start = draw.randrange(len(pods))
    typical_s = sorted(pod.duration_s for pod in pods)[len(pods) // 2] or 1
    runs = [min(max(pod.duration_s / typical_s * tempo.typical_s, tempo.least_s), tempo.most_s) for pod in pods]
    wanted = devices * tempo.load
    filling = wanted / _mean(pods) / tempo.fill_s
    keeping = wanted / _mean(pods, runs)
    at_s, number = 0.0, 0
    while True:
        index = (start + number) % len(pods)
        rate = max(filling, keeping) if at_s < tempo.fill_s else keeping
        at_s += draw.expovariate(rate)
        pod = pods[index]
        name = f"{pod.name}-{number // len(pods)}"
        yield Arrival(at_s, runs[index], _NAMESPACES[pod.qos], name, pod_object(pod, name))
        number += 1


def pod_object(pod: TracePod, name: str) -> dict[str, object]:
    """Return the pod as it is after admission: resources completed, devices read from the Binding's annotation."""
    gpu = _gpu_rows(pod)
    rows = {"cpu": f"{pod.cpu_milli}m", "memory": f"{pod.memory_mib}Mi", **gpu}
    container: dict[str, object] = {
        "name": CONTAINER,
        "image": "registry.example/trace:1",
        "resources": {"requests": rows, "limits": gpu} if gpu else {"requests": rows},
    }
    spec: dict[str, object] = {"containers": [container], "schedulerName": SCHEDULER_NAME, "restartPolicy": "Never"}
    if gpu:
        container["env"] = [_visible_devices()]
        spec["runtimeClassName"] = "nvidia"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": _NAMESPACES[pod.qos],
            "labels": {"qos": pod.qos, **({f"{PREFIX}managed": "true"} if gpu else {})},
            "annotations": _conditions(pod),
        },
        "spec": spec,
    }


def _mean(pods: Sequence[TracePod], runs: Sequence[float] | None = None) -> float:
    """Return the mean devices of a pod; with ``runs``, the mean device-seconds."""
    devices = [pod.gpus * pod.gpu_milli / WHOLE_MILLI for pod in pods]
    return sum(map(operator.mul, devices, runs)) / len(pods) if runs is not None else sum(devices) / len(pods)


def _takes_instance(pod: TracePod) -> bool:
    return 0 < pod.gpu_milli <= _SMALL_MILLI


def _gpu_rows(pod: TracePod) -> dict[str, str]:
    if not pod.gpus:
        return {}
    percent = str(math.ceil(pod.gpu_milli / _MILLI_PER_PERCENT) * pod.gpus)
    memory = str(pod.gpu_milli * _CARD_MIB // WHOLE_MILLI)
    rows = {f"{PREFIX}gpu": str(pod.gpus)}
    if _takes_instance(pod):
        return {**rows, f"{PREFIX}gpu-memory": memory}
    if pod.qos == "LS" and pod.gpu_milli < WHOLE_MILLI:
        return {**rows, f"{PREFIX}gpu-memory": memory, f"{PREFIX}gpu-compute": percent}
    return {**rows, f"{PREFIX}gpu-compute": percent}


def _conditions(pod: TracePod) -> dict[str, str]:
    if not pod.gpus:
        return {}
    wants_wall = pod.qos == "LS" and not pod.models
    sharing = "mig" if wants_wall else "mig, time-slicing"
    found = {f"{PREFIX}gpu-sharing": sharing} if _takes_instance(pod) else {}
    architecture = _ARCHITECTURES.get(tuple(sorted(pod.models)))
    if architecture is not None:
        return {**found, f"{PREFIX}gpu-architecture": architecture}
    if pod.models:
        products = ", ".join(dict.fromkeys(_PRODUCTS[model] for model in pod.models))
        return {**found, f"{PREFIX}gpu-product": products}
    if pod.qos == "LS":
        return {**found, f"{PREFIX}gpu-architecture": ">=pascal"}
    return found


def _visible_devices() -> dict[str, object]:
    path = f"metadata.annotations['{PREFIX}devices-{CONTAINER}']"
    return {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": path}}}
