"""Common mistakes, recognised in a pod and said in its author's words: what was written, what it means, what to write.

A hint never decides anything; it is given only where its mistake is likely the cause of what the user sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from extender.allocation import DEVICES_KEY, claimed_keys
from extender.annotations import GPU_CONTAINER
from extender.asks import GPU, GPU_COMPUTE, GPU_MEMORY
from extender.decisions import Decision
from extender.objects import Pod
from extender.podspec import PLUGIN_MIG_PREFIX, PLUGIN_RESOURCES
from scoring.diagnosis import Diagnosis
from scoring.request import ContainerAsk, PodRequest, SharingMode
from scoring.status import Reason

_SUSPICIOUS_MIB = 256
"""Less than a CUDA context takes: whoever asks so little probably meant GiB."""
_SUSPICIOUS_MILLI = 20
MANAGED_LABEL = "managed"


@dataclass(frozen=True, slots=True)
class PodSide:
    """A pod, and what is known of it. ``last_filter`` is our last answer about it to kube-scheduler."""

    pod: Pod
    request: PodRequest | None
    diagnosis: Diagnosis | None
    prefix: str
    schedulers: tuple[str, ...]
    last_filter: Decision | None

    def reasons(self) -> frozenset[Reason]:
        """Return the reasons that nodes were refused for; empty where some node fits, or the pod has one."""
        counts = self.diagnosis.counts if self.diagnosis is not None else ()
        found = frozenset(count.reason for count in counts if count.reason is not None)
        return frozenset() if self.pod.spec.node_name or any(count.reason is None for count in counts) else found


def hints(side: PodSide) -> tuple[str, ...]:
    """Return the hints for a pod, the likeliest cause first."""
    return tuple(hint for find in _FINDERS for hint in find(side))


def _other_scheduler(side: PodSide) -> Iterator[str]:
    spec = side.pod.spec
    asks = side.request is not None and bool(side.request.containers)
    if side.last_filter is not None or spec.node_name or not asks:
        return
    if spec.scheduler_name and spec.scheduler_name not in side.schedulers:
        yield (
            f"The pod names the scheduler {spec.scheduler_name}, which does not ask Tangram: "
            f"set schedulerName to {side.schedulers[0]}, or leave it out and let the webhook set it."
        )


def _without_label(side: PodSide) -> Iterator[str]:
    if side.request is None or not side.request.containers:
        return
    labels = side.pod.metadata.labels or {}
    shown = [key for container in side.pod.all_containers() for key in claimed_keys(container, side.prefix)]
    if side.prefix + MANAGED_LABEL not in labels and not shown:
        yield (
            f"The pod has no label {side.prefix}{MANAGED_LABEL} and none of its containers reads "
            f"{side.prefix}{DEVICES_KEY}...: Tangram's webhook has not seen it, so its containers would start "
            "without a GPU. Make it again while the webhook is up, in a namespace that the webhook covers."
        )


def _held_back(side: PodSide) -> Iterator[str]:
    gates = [gate.name for gate in side.pod.spec.scheduling_gates or ()]
    if gates:
        yield f"Scheduling gates hold the pod back ({', '.join(gates)}): no scheduler looks at it until they are gone."


def _never_asked(side: PodSide) -> Iterator[str]:
    waits = side.diagnosis is not None and not side.pod.spec.node_name and not side.pod.spec.scheduling_gates
    if waits and side.last_filter is None and side.pod.spec.scheduler_name in ("", *side.schedulers):
        yield (
            "kube-scheduler has not asked Tangram about this pod lately: before it asks, it drops nodes that lack CPU, "
            "host memory, or the totals of GPU resources, and tainted nodes; `kubectl describe pod` counts them."
        )


def _dropped_before(side: PodSide) -> Iterator[str]:
    """Tell of nodes that fit and that kube-scheduler did not offer."""
    last, diagnosis = side.last_filter, side.diagnosis
    if last is None or diagnosis is None or side.pod.spec.node_name or last.nodes_out:
        return
    if any(count.reason is None for count in diagnosis.counts):
        total = sum(count.nodes for count in diagnosis.counts)
        yield (
            f"When kube-scheduler last asked, it offered {last.nodes_in} of {total} nodes: it had dropped the others "
            "for CPU, host memory, totals of GPU resources, taints or affinity; `kubectl describe pod` counts them."
        )


def _whole_by_default(side: PodSide) -> Iterator[str]:
    if Reason.NO_FREE_DEVICE not in side.reasons():
        return
    for ask in _asks(side):
        if ask.is_whole and _rows(side, ask.name) == {GPU}:
            yield (
                f"Container {ask.name} asks {side.prefix}{GPU}: {ask.count} and nothing else, which means "
                f"{_devices(ask.count, 'whole ')}, shared with nobody. For a part of one, ask "
                f"{side.prefix}{GPU_MEMORY} (MiB) or {side.prefix}{GPU_COMPUTE} (per cent) instead."
            )


def _slots_for_devices(side: PodSide) -> Iterator[str]:
    if Reason.TOO_FEW_DEVICES not in side.reasons():
        return
    for ask in _asks(side):
        if ask.count > 1:
            yield (
                f"{side.prefix}{GPU}: {ask.count} means {ask.count} different devices, not {ask.count} shares of one. "
                f"For a share of one device leave {side.prefix}{GPU} out."
            )


def _totals_are_split(side: PodSide) -> Iterator[str]:
    refused = side.reasons() & {Reason.DEVICE_TOO_SMALL, Reason.INSUFFICIENT_MEMORY, Reason.INSUFFICIENT_COMPUTE}
    for ask in _asks(side):
        if refused and ask.count > 1 and ask.memory_mib is not None:
            yield (
                f"{side.prefix}{GPU_MEMORY} is the total over the container's {ask.count} devices: "
                f"{ask.memory_mib * ask.count} MiB there ask {ask.memory_mib} MiB of each."
            )


def _tiny_memory(side: PodSide) -> Iterator[str]:
    for ask in _asks(side):
        if ask.memory_mib is not None and ask.memory_mib < _SUSPICIOUS_MIB:
            total = ask.memory_mib * ask.count
            yield (
                f"{side.prefix}{GPU_MEMORY}: {total} is {total} MiB, less than CUDA itself needs. A plain number "
                f"counts MiB: for {total} GiB write {total}Gi."
            )


def _tiny_compute(side: PodSide) -> Iterator[str]:
    for ask in _asks(side):
        if ask.compute_milli is not None and ask.compute_milli < _SUSPICIOUS_MILLI:
            per_cent = ask.compute_milli / 10
            yield (
                f"{side.prefix}{GPU_COMPUTE} counts per cent of a device: the pod asks {per_cent:g} %. "
                "For one whole device write 100."
            )


def _memory_follows(side: PodSide) -> Iterator[str]:
    if Reason.INSUFFICIENT_COMPUTE not in side.reasons():
        return
    for ask in _asks(side):
        if ask.compute_milli is None:
            yield (
                f"Container {ask.name} asks memory only, and compute follows it in proportion. If it needs little "
                f"compute, say so: a small {side.prefix}{GPU_COMPUTE} beside {side.prefix}{GPU_MEMORY}."
            )


def _family(side: PodSide) -> Iterator[str]:
    if side.diagnosis is None or Reason.NO_MATCHING_DEVICE not in side.reasons():
        return
    products = {device.product.lower() for node in side.diagnosis.nodes for device in node.devices}
    for name in dict(side.diagnosis.asked.conditions).get("gpu-product", "").lower().split(","):
        begins = any(product.startswith(name) and product != name for product in products)
        if name and begins and name not in products:
            yield f"gpu-product {name} names one product exactly; for all that begin so write {name}*."


def _mig_asked(side: PodSide) -> Iterator[str]:
    if side.request is None or side.request.sharing != {SharingMode.MIG}:
        return
    if side.reasons() & {Reason.NO_SHARING_MODE, Reason.NO_MATCHING_DEVICE}:
        yield (
            "The pod asks for a MIG instance, and no node offers a fitting one. Tangram uses the instances that the "
            "operator made and makes none: ask for another profile, or drop mig-profile and gpu-sharing."
        )


def _plugin(side: PodSide) -> Iterator[str]:
    wants = sorted({name for container in side.pod.all_containers() for name in _requested(container)})
    theirs = [name for name in wants if name in PLUGIN_RESOURCES or name.startswith(PLUGIN_MIG_PREFIX)]
    if theirs and (side.request is None or not side.request.containers):
        yield (
            f"{', '.join(theirs)} is handed out by NVIDIA's device plugin, on nodes where it runs. For a share of a "
            f"GPU that Tangram hands out, ask {side.prefix}{GPU_MEMORY} or {side.prefix}{GPU_COMPUTE} instead."
        )


def _which_container(side: PodSide) -> Iterator[str]:
    if side.request is None and side.prefix + GPU_CONTAINER in side.pod.annotations:
        yield f"{side.prefix}{GPU_CONTAINER} names the one container that gpu-fraction is for."


_FINDERS: tuple[Callable[[PodSide], Iterator[str]], ...] = (
    _other_scheduler,
    _held_back,
    _plugin,
    _which_container,
    _whole_by_default,
    _slots_for_devices,
    _totals_are_split,
    _tiny_memory,
    _tiny_compute,
    _memory_follows,
    _family,
    _mig_asked,
    _without_label,
    _never_asked,
    _dropped_before,
)


def _asks(side: PodSide) -> tuple[ContainerAsk, ...]:
    return side.request.containers if side.request is not None else ()


def _rows(side: PodSide, name: str) -> set[str]:
    """Return which of our rows a container's author wrote; the webhook's completion of a whole device is not theirs."""
    for container in side.pod.all_containers():
        if container.name == name:
            ours = {row.removeprefix(side.prefix) for row in _requested(container) if row.startswith(side.prefix)}
            return ours - {GPU_COMPUTE} if GPU in ours else ours
    return set()


def _requested(container: object) -> set[str]:
    resources = getattr(container, "resources", None)
    return set() if resources is None else {*(resources.requests or ()), *(resources.limits or ())}


def _devices(count: int, kind: str = "") -> str:
    return f"{count} {kind}device" + ("" if count == 1 else "s")
