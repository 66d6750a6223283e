"""The parts of Kubernetes objects that Tangram reads: pods and nodes as partial, immutable structs.

One shape for what kube-scheduler sends, what a watch delivers and what admission reviews. Decoding skips everything
not named here, and takes JSON null for whatever may be left out, as Go does. Nothing here judges: a pod that asks
nonsense decodes well.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NOTHING: Mapping[str, str] = MappingProxyType({})


class _Object(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Base: Kubernetes' camelCase spelling; values only, so the garbage collector need not track them."""


class OwnerReference(_Object, frozen=True, gc=False):
    """Who made an object."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(_Object, frozen=True, gc=False):
    """Name and marks of an object; ``deletion_timestamp`` is set once its deletion was asked for."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None


class Resources(_Object, frozen=True, gc=False):
    """Amounts by resource name, as Kubernetes quantities."""

    requests: dict[str, str] | None = None
    limits: dict[str, str] | None = None


class FieldReference(_Object, frozen=True, gc=False):
    """A field of the pod, such as ``metadata.annotations['example.com/key']``."""

    field_path: str = ""


class VariableSource(_Object, frozen=True, gc=False):
    """Where a variable's value comes from, where that is a field of the pod."""

    field_ref: FieldReference | None = None


class Variable(_Object, frozen=True, gc=False):
    """One environment variable."""

    name: str = ""
    value: str | None = None
    value_from: VariableSource | None = None

    @property
    def field_path(self) -> str:
        """Return the field of the pod that this variable shows, or an empty string."""
        source = self.value_from
        return source.field_ref.field_path if source is not None and source.field_ref is not None else ""


class Container(_Object, frozen=True, gc=False):
    """One container of a pod; an init container whose ``restart_policy`` is ``Always`` is a sidecar."""

    name: str = ""
    resources: Resources | None = None
    restart_policy: str | None = None
    env: tuple[Variable, ...] | None = None


class SchedulingGate(_Object, frozen=True, gc=False):
    """Something that holds a pod back from scheduling."""

    name: str = ""


class PodSpec(_Object, frozen=True, gc=False):
    """What a pod's author wants, as far as placement is concerned."""

    node_name: str = ""
    scheduler_name: str = ""
    runtime_class_name: str | None = None
    priority: int | None = None
    preemption_policy: str | None = None
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    overhead: dict[str, str] | None = None
    resources: Resources | None = None
    scheduling_gates: tuple[SchedulingGate, ...] | None = None


class Condition(_Object, frozen=True, gc=False):
    """One condition of a pod or a node; ``status`` is ``True``, ``False`` or ``Unknown``."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


class PodStatus(_Object, frozen=True, gc=False):
    """What became of a pod so far."""

    phase: str = ""
    nominated_node_name: str | None = None
    conditions: tuple[Condition, ...] | None = None


class Pod(_Object, frozen=True, gc=False):
    """The parts of a pod that Tangram reads."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def annotations(self) -> Mapping[str, str]:
        """Return the pod's annotations, empty where it has none."""
        return self.metadata.annotations or _NOTHING

    @property
    def is_terminal(self) -> bool:
        """Return whether the pod ran to its end and uses nothing any more."""
        return self.status.phase in ("Succeeded", "Failed")

    def all_containers(self) -> Iterator[Container]:
        """Yield the init containers and sidecars in their order, then the others."""
        yield from self.spec.init_containers or ()
        yield from self.spec.containers or ()


class Taint(_Object, frozen=True, gc=False):
    """A mark that keeps pods off a node."""

    key: str = ""
    value: str | None = None
    effect: str = ""


class NodeSpec(_Object, frozen=True, gc=False):
    """What an operator wants of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None


class NodeStatus(_Object, frozen=True, gc=False):
    """What a node has, as Kubernetes quantities by resource name, and how it fares."""

    capacity: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None
    conditions: tuple[Condition, ...] | None = None


class Node(_Object, frozen=True, gc=False):
    """The parts of a node that Tangram reads."""

    metadata: Metadata = Metadata()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
