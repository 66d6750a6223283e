"""What one pod asks of GPUs, as frozen, hashable values.

Amounts are per device: the division of a container's totals over its devices is done by whoever reads the pod
(``extender.podspec``). A dimension that is None follows the other one on the device that is chosen: see ``placement``.
Two pods that ask the same are equal, so a request is also the key of everything remembered for its shape; a pod's
identity is kept outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from scoring.conditions import ANY_DEVICE, Conditions

WHOLE_MILLI = 1000
"""Compute of one physical device, in thousandths."""


class ContainerKind(StrEnum):
    """How a container runs: alone before the pod, beside everything that follows, or as the pod itself."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


class SharingMode(StrEnum):
    """Which kind of share a pod accepts, and which kind a device offers (design section 2, ``gpu-sharing``)."""

    TIME_SLICING = "time-slicing"
    MPS = "mps"
    MIG = "mig"
    EXCLUSIVE = "exclusive"


class Topology(StrEnum):
    """How close several devices of one container must be."""

    ANY = "any"
    NUMA = "numa"
    NVLINK = "nvlink"


DEFAULT_SHARING = frozenset({SharingMode.TIME_SLICING})


@dataclass(frozen=True, slots=True)
class ContainerAsk:
    """What one container asks: ``count`` different devices, and of each the same share.

    ``memory_mib``      MiB of each device, 1 or more; None follows ``compute_milli``
    ``compute_milli``   thousandths of each device, 1 to 1000; None follows ``memory_mib``
    Whole devices are ``compute_milli`` 1000 with ``memory_mib`` None.
    """

    name: str
    count: int = 1
    memory_mib: int | None = None
    compute_milli: int | None = None
    kind: ContainerKind = ContainerKind.APP

    def __post_init__(self) -> None:
        if self.count < 1 or (self.memory_mib is None and self.compute_milli is None):
            msg = f"container {self.name}: an ask has at least one device and at least one amount"
            raise ValueError(msg)

    @property
    def is_whole(self) -> bool:
        """Return whether devices are asked that nobody else uses."""
        return self.memory_mib is None and self.compute_milli == WHOLE_MILLI


@dataclass(frozen=True, slots=True)
class PluginAsk:
    """What a pod asks of NVIDIA's own device plugin: its resource name (``nvidia.com/gpu``) and how many."""

    resource: str
    count: int


@dataclass(frozen=True, slots=True)
class PodRequest:
    """What one pod asks.

    ``containers``    those that ask for GPUs, in the pod's order: init containers and sidecars first, then the others
    ``sharing``       kinds of share that the pod accepts, at least one
    ``preferences``   (product or architecture pattern, weight > 0) pairs of ``gpu-prefer``
    ``policy``        a policy profile by name; None is the configured default
    ``workload``      the named preset that the author chose, for explanations only
    ``cpu_milli``, ``host_memory_mib``  the pod's effective CPU and host memory: what it takes of the node beside GPUs
    ``plugin``        resources of NVIDIA's device plugin; such a pod has no ``containers``
    """

    containers: tuple[ContainerAsk, ...] = ()
    conditions: Conditions = ANY_DEVICE
    sharing: frozenset[SharingMode] = DEFAULT_SHARING
    topology: Topology = Topology.ANY
    preferences: tuple[tuple[str, float], ...] = ()
    policy: str | None = None
    workload: str | None = None
    cpu_milli: int = 0
    host_memory_mib: int = 0
    plugin: tuple[PluginAsk, ...] = ()

    @property
    def asks_gpu(self) -> bool:
        """Return whether any device is asked, ours or the plugin's."""
        return bool(self.containers or self.plugin)

    @property
    def is_exclusive(self) -> bool:
        """Return whether devices are asked under ``gpu-sharing: exclusive``: booked whole, whatever the amounts."""
        return self.sharing == frozenset({SharingMode.EXCLUSIVE})


@dataclass(frozen=True, slots=True)
class Share:
    """What a container holds of one device: MiB and thousandths of the device, and how it is shared."""

    uuid: str
    memory_mib: int
    compute_milli: int
    mode: SharingMode


@dataclass(frozen=True, slots=True)
class Allocation:
    """The shares given to a pod: container name -> shares in the order in which the container sees its devices."""

    containers: tuple[tuple[str, tuple[Share, ...]], ...]
    policy: str

    def shares(self) -> tuple[Share, ...]:
        """Return all shares, container by container; less is *booked* where containers run one after another."""
        return tuple(share for _, shares in self.containers for share in shares)
