"""What the mutating webhook writes into a pod, as steps of a JSON Patch.

Every function returns only what is not there yet, so a pod that went through once is left as it is: the API server may
ask again after another webhook changed the pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from extender.admission_review import Operation
from extender.admission_settings import AdmissionSettings
from extender.admission_shapes import (
    DEFAULT_SCHEDULER,
    MANAGED,
    MANAGED_VALUE,
    Place,
    Shape,
    annotation_path,
    places,
    shape_of_container,
)
from extender.allocation import Injector
from extender.annotations import WORKLOAD, with_workload
from extender.asks import GPU_COMPUTE, GPU_MEMORY
from extender.objects import Pod, Resources
from extender.quantity import MemoryUnit, memory_amount
from scoring.request import ContainerAsk, PodRequest

_MILLI_PER_PERCENT = 10
_NOTHING = Resources()


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A container's rows as they should stand, full resource name -> amount, and what is to be said about it."""

    rows: Mapping[str, str]
    warnings: tuple[str, ...] = ()


def scheduler_patch(pod: Pod, rules: AdmissionSettings) -> Iterator[Operation]:
    """Give a pod that names no scheduler of its own to ours."""
    if pod.spec.scheduler_name in ("", DEFAULT_SCHEDULER) and rules.scheduler_name != pod.spec.scheduler_name:
        yield Operation("add", "/spec/schedulerName", rules.scheduler_name)


def preset_patch(pod: Pod, prefix: str) -> Iterator[Operation]:
    """Write the rows that the pod's named workload stands for and that its author left out; the name must be known."""
    workload = pod.annotations.get(prefix + WORKLOAD, "").strip() or None
    for key, text in with_workload(pod.annotations, workload, prefix).items():
        if key not in pod.annotations:
            yield Operation("add", _below("/metadata/annotations", key), text)


def managed_patch(pod: Pod, request: PodRequest, rules: AdmissionSettings, prefix: str) -> Iterator[Operation]:
    """Give a pod of ours its label, its runtime class and its containers' variables."""
    label = prefix + MANAGED
    if pod.metadata.labels is None:
        yield Operation("add", "/metadata/labels", {label: MANAGED_VALUE})
    elif label not in pod.metadata.labels:
        yield Operation("add", _below("/metadata/labels", label), MANAGED_VALUE)
    if rules.injector is Injector.ENVIRONMENT and rules.runtime_class and not pod.spec.runtime_class_name:
        yield Operation("add", "/spec/runtimeClassName", rules.runtime_class)
    for place in places(pod):
        yield from _variables_patch(place, shape_of_container(place.container, request, rules, prefix))


def rewrites(pod: Pod, request: PodRequest, prefix: str) -> Iterator[tuple[Place, Rewrite]]:
    """Yield for each container that asks for devices what its rows should be: complete, and memory in plain MiB."""
    asks = {ask.name: ask for ask in request.containers}
    for place in places(pod):
        if place.container.name in asks:
            yield place, _rewrite(place, asks[place.container.name], prefix)


def rows_patch(place: Place, rewrite: Rewrite) -> Iterator[Operation]:
    """Bring a container's requests and limits to what they should be; Kubernetes wants both, and equal."""
    resources = place.container.resources
    if resources is None:
        yield Operation("add", f"{place.pointer}/resources", {"limits": rewrite.rows, "requests": rewrite.rows})
        return
    for field, there in (("limits", resources.limits), ("requests", resources.requests)):
        pointer = f"{place.pointer}/resources/{field}"
        if there is None:
            yield Operation("add", pointer, rewrite.rows)
            continue
        for resource, amount in rewrite.rows.items():
            if there.get(resource) != amount:
                yield Operation("add", _below(pointer, resource), amount)


def _rewrite(place: Place, ask: ContainerAsk, prefix: str) -> Rewrite:
    """Return the rows of a container that was understood: ``gpu`` or a fraction alone is completed by its compute."""
    resources = place.container.resources or _NOTHING
    found = {**(resources.limits or {}), **(resources.requests or {})}
    rows = {resource: amount for resource, amount in found.items() if resource.startswith(prefix)}
    warnings = []
    memory = prefix + GPU_MEMORY
    if memory in rows:
        amount = memory_amount(rows[memory], f"{memory} of container {ask.name}")
        if str(amount.mib) != amount.found:
            warnings.append(f"{memory} of container {ask.name}: {_understood(amount.unit, amount.found, amount.mib)}")
        rows[memory] = str(amount.mib)
    elif prefix + GPU_COMPUTE not in rows and ask.compute_milli is not None:
        rows[prefix + GPU_COMPUTE] = str(ask.count * ask.compute_milli // _MILLI_PER_PERCENT)
    return Rewrite(rows, tuple(warnings))


def _understood(unit: MemoryUnit, found: str, mib: int) -> str:
    """Return what was made of an amount. Its author may never have typed it: Kubernetes itself writes 5000 as 5k."""
    counted = "an amount of bytes" if unit is MemoryUnit.BYTES else "a count of MiB"
    return f"{found} is {counted} and was written as {mib} (MiB)"


def _variables_patch(place: Place, shape: Shape) -> Iterator[Operation]:
    there = {variable.name for variable in place.container.env or ()}
    missing = [variable for variable in _variables(shape) if variable["name"] not in there]
    if missing and place.container.env is None:
        yield Operation("add", f"{place.pointer}/env", missing)
    else:
        yield from (Operation("add", f"{place.pointer}/env/-", variable) for variable in missing)


def _variables(shape: Shape) -> Iterator[dict[str, object]]:
    for name, key in shape.shown.items():
        yield {"name": name, "valueFrom": {"fieldRef": {"fieldPath": annotation_path(key)}}}
    for name, text in shape.literal.items():
        yield {"name": name, "value": text}


def _below(pointer: str, name: str) -> str:
    """Return the JSON Pointer of a name below another (RFC 6901)."""
    return f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
