"""What an agent tells the extender about its node, and what it hears back: schema version 1.

A leaf module, the only one of the agent that the extender may import. Reports are whole and latest wins: a report
replaces the one before. Absent means "not known", never zero. Sizes are MiB (2**20 bytes), ratios are 0 to 1. Ages are
counted by the extender from the time of arrival; ``sequence`` only orders reports of one ``agent_run``.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

SCHEMA_VERSION = 1


class NodeState(StrEnum):
    """What the agent can say of its node as a whole."""

    OK = "ok"
    NO_DRIVER = "no_driver"
    DRIVER_MISMATCH = "driver_mismatch"
    NO_ACCESS = "no_access"
    NO_GPU = "no_gpu"
    DEGRADED = "degraded"
    STALE = "stale"


class Health(StrEnum):
    """State of one device; only ``healthy`` and ``suspect`` devices take new pods."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    OUT = "out"
    PROBATION = "probation"
    LOST = "lost"
    CORDONED = "cordoned"


class Owner(StrEnum):
    """Who hands the device out."""

    TANGRAM = "tangram"
    PLUGIN = "plugin"
    CONTRADICTION = "contradiction"


class Mode(StrEnum):
    """How the operator set the device up for sharing; ``mig`` is an instance."""

    TIME_SLICING = "time-slicing"
    MPS = "mps"
    MIG = "mig"


class Mig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A MIG instance: its parent, and its profile as the driver names it (``1g.10gb``)."""

    parent_uuid: str
    profile: str
    gi_id: int | None = None
    ci_id: int | None = None
    placement_start: int | None = None
    placement_size: int | None = None


class MigProfile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A shape that instances of a split GPU can have, from its driver; the true size, which the name only rounds.

    ``max_count``    instances of this profile on an empty GPU
    ``placements``   (start, size) in memory slices, all that the GPU allows; empty where the agent may not ask
    """

    profile: str
    sm_count: int
    total_mib: int
    max_count: int
    placements: tuple[tuple[int, int], ...] = ()


class Device(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One schedulable device: a physical GPU that is not split, or a MIG instance.

    ``total_mib``         memory as NVML reports it
    ``reserved_mib``      of that, kept by the driver; schedulable memory is total - reserved
    ``used_mib``          in use now, without reserved
    ``foreign_mib``       held by processes of no pod of ours
    ``sm_milli``          SMs in thousandths of the physical GPU (1000 for a whole one, less for a MIG instance)
    ``utilisation``       0..1, share of the last sample period with a kernel running; absent when not known
    ``link_group``        devices of one node with the same value reach each other by NVLink
    ``fault``             why the device is not healthy, in words ("XID 79: GPU has fallen off the bus")
    """

    uuid: str
    index: int | None = None
    name: str = ""
    architecture: int | None = None
    compute_capability: tuple[int, int] | None = None
    total_mib: int = 0
    reserved_mib: int = 0
    used_mib: int | None = None
    foreign_mib: int = 0
    sm_milli: int = 1000
    utilisation: float | None = None
    memory_utilisation: float | None = None
    temperature_celsius: int | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    health: Health = Health.HEALTHY
    fault: str = ""
    owner: Owner = Owner.TANGRAM
    mode: Mode = Mode.TIME_SLICING
    mode_ready: bool = True
    mig: Mig | None = None
    mig_enabled: bool = False
    mig_profiles: tuple[MigProfile, ...] = ()
    numa_node: int | None = None
    link_group: int | None = None
    fabric_clique: str = ""
    pci_bus_id: str = ""


class PluginResource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One resource of NVIDIA's device plugin on this node: replicas in all, handed out, and the devices behind it."""

    resource: str
    replicas: int
    used: int
    uuids: tuple[str, ...] = ()


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What one pod really uses of one device."""

    pod_uid: str
    uuid: str
    memory_mib: int
    container: str = ""
    sm_ratio: float | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Everything an agent knows about its node at one moment."""

    version: int
    node: str
    agent_run: str
    sequence: int
    state: NodeState = NodeState.OK
    message: str = ""
    driver: str = ""
    cuda: str = ""
    agent_version: str = ""
    devices: tuple[Device, ...] = ()
    plugin: tuple[PluginResource, ...] = ()
    usage: tuple[Usage, ...] = ()
    bookings_generation: int | None = None


class Booking(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One share of one container on this node, as the extender's books have it."""

    pod_uid: str
    namespace: str
    name: str
    container: str
    uuid: str
    memory_mib: int
    compute_milli: int
    mode: str = "time-slicing"


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What the extender answers to a report.

    ``bookings`` is absent when the agent already has ``bookings_generation``.
    """

    bookings_generation: int
    bookings: tuple[Booking, ...] | None = None
    heartbeat_s: float = 15.0
    cordoned: tuple[str, ...] = ()
