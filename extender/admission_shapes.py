"""The shapes that Tangram gives to pods, and what their authors must leave to it.

A shape is what the mutating webhook writes: a container that gets devices shows the annotation of its own by fieldRef,
every other container of that pod says ``void`` (the runtime class is the pod's, and an image may say ``all``). Whatever
an author wrote beside these is refused, never stripped (design section 3). The same rules, without the meaning of
requests, are ValidatingAdmissionPolicies, which hold while the webhook is down.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from extender.admission_settings import AdmissionSettings
from extender.allocation import (
    ALLOCATION_KEY,
    CDI_DOMAINS,
    DEVICES_KEY,
    MPS_KEY,
    VISIBLE_DEVICES,
    Injector,
    device_key,
    mps_keys,
)
from extender.asks import GPU_FRACTION
from extender.objects import Container, Pod, Variable
from scoring.errors import InvalidRequest
from scoring.request import ContainerAsk, PodRequest, SharingMode

MANAGED = "managed"
MANAGED_VALUE = "true"
VOID = "void"
DEFAULT_SCHEDULER = "default-scheduler"
MPS_THREADS = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MPS_MEMORY = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
MPS_PIPE = "CUDA_MPS_PIPE_DIRECTORY"

_MAX_CDI_NAME = 53
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Shape:
    """What one container's environment must say: variable -> annotation shown by fieldRef, or literal text."""

    shown: Mapping[str, str]
    literal: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Place:
    """A container with its JSON Pointer inside the pod."""

    pointer: str
    container: Container


def places(pod: Pod) -> Iterator[Place]:
    """Yield every container of a pod that is being created: init containers and sidecars first."""
    for field, containers in (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers)):
        for index, container in enumerate(containers or ()):
            yield Place(f"/spec/{field}/{index}", container)


def annotation_path(key: str) -> str:
    """Return how a fieldRef names an annotation."""
    return f"metadata.annotations['{key}']"


def shape_of_container(container: Container, request: PodRequest, rules: AdmissionSettings, prefix: str) -> Shape:
    """Return what the environment of one container of a pod of ours must say."""
    asks = any(ask.name == container.name for ask in request.containers)
    limits: dict[str, str] = {}
    if asks and SharingMode.MPS in request.sharing:
        threads, memory = mps_keys(container.name)
        limits = {MPS_THREADS: prefix + threads, MPS_MEMORY: prefix + memory}
    if rules.injector is Injector.NRI:
        return Shape(limits, {})
    if not asks:
        return Shape({}, {VISIBLE_DEVICES: VOID})
    # Kubelet puts the device's UUID in when the container starts: each device has a daemon and a directory of its own.
    pipe = {MPS_PIPE: f"{rules.mps_directory}/$({VISIBLE_DEVICES})/pipe"} if limits else {}
    return Shape({VISIBLE_DEVICES: prefix + device_key(container.name), **limits}, pipe)


def reserved_annotations(pod: Pod, prefix: str) -> tuple[InvalidRequest, ...]:
    """Return a problem for every annotation that only a Binding may carry."""
    ours = (prefix + DEVICES_KEY, prefix + MPS_KEY, *CDI_DOMAINS)
    return tuple(
        InvalidRequest(
            f"annotation {key}", pod.annotations[key][:_SHOWN], "no such annotation: placing the pod writes it"
        )
        for key in sorted(pod.annotations)
        if key == prefix + ALLOCATION_KEY or key.startswith(ours)
    )


def shape_problems(
    pod: Pod, request: PodRequest | None, rules: AdmissionSettings, prefix: str
) -> tuple[InvalidRequest, ...]:
    """Return everything in a pod of ours that its author must leave to Tangram.

    ``request`` is None where it could not be read: then a container may have the shape of either kind.
    """
    problems = [*_pod_problems(pod, rules, prefix), *reserved_annotations(pod, prefix)]
    for place in places(pod):
        name = place.container.name
        requests = (request,) if request else (PodRequest(), PodRequest((ContainerAsk(name, compute_milli=1),)))
        shapes = [shape_of_container(place.container, each, rules, prefix) for each in requests]
        problems += _variable_problems(place.container, shapes)
        if rules.injector is Injector.NRI and len(name) > _MAX_CDI_NAME:
            valid = f"at most {_MAX_CDI_NAME} characters where NVIDIA's NRI plugin injects devices"
            problems.append(InvalidRequest("container name", name, valid))
    return tuple(problems)


def mentions_ours(pod: Pod, prefix: str) -> bool:
    """Return whether a pod means to ask us for something, be it understood or not."""
    if pod.annotations.get(prefix + GPU_FRACTION, "").strip():
        return True
    resources = (container.resources for container in pod.all_containers() if container.resources)
    return any(
        name.startswith(prefix) for each in resources for name in {**(each.limits or {}), **(each.requests or {})}
    )


def _pod_problems(pod: Pod, rules: AdmissionSettings, prefix: str) -> Iterator[InvalidRequest]:
    spec, label = pod.spec, prefix + MANAGED
    if spec.node_name:
        yield InvalidRequest("spec.nodeName", spec.node_name, "no node name: a node is chosen by its free devices")
    if spec.scheduler_name not in ("", DEFAULT_SCHEDULER, *rules.schedulers):
        yield InvalidRequest("spec.schedulerName", spec.scheduler_name, _one_of(rules.schedulers))
    named = spec.runtime_class_name
    if named and rules.runtime_class and rules.injector is Injector.ENVIRONMENT and named not in rules.runtime_classes:
        yield InvalidRequest("spec.runtimeClassName", named, _one_of(rules.runtime_classes))
    value = (pod.metadata.labels or {}).get(label, MANAGED_VALUE)
    if value != MANAGED_VALUE:
        yield InvalidRequest(f"label {label}", value, f"{MANAGED_VALUE}, or no such label")


def _one_of(names: tuple[str, ...]) -> str:
    return f"{' or '.join(names)}, or nothing"


def _variable_problems(container: Container, shapes: Sequence[Shape]) -> Iterator[InvalidRequest]:
    guarded = {VISIBLE_DEVICES}.union(*({*shape.shown, *shape.literal} for shape in shapes))
    for variable in container.env or ():
        if variable.name in guarded and not any(has_shape(variable, shape) for shape in shapes):
            field = f"variable {variable.name} of container {container.name}"
            yield InvalidRequest(field, _found(variable), _valid(variable.name, shapes))


def has_shape(variable: Variable, shape: Shape) -> bool:
    """Return whether a variable is just as Tangram would write it."""
    if variable.name in shape.shown:
        return variable.value is None and variable.field_path == annotation_path(shape.shown[variable.name])
    return variable.value_from is None and (variable.value or "") == shape.literal.get(variable.name)


def _found(variable: Variable) -> str:
    if variable.value_from is None:
        return (variable.value or "")[:_SHOWN]
    return f"valueFrom {variable.field_path}"[:_SHOWN].strip()


def _valid(name: str, shapes: Sequence[Shape]) -> str:
    texts = [shape.literal[name] for shape in shapes if name in shape.literal]
    return " or ".join([*texts, "no such variable: placing the pod sets it"])
