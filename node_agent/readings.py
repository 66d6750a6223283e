"""What one sweep over a node's GPUs found: the values that every reader produces and inventory turns into a report.

The NVML reader (in its own process) and the simulated reader both produce ``Readings``; nothing behind them knows
which it was. ``None`` means that the driver does not offer the value on this product; it never stands for zero. Sizes
are MiB, totals rounded down and reserved memory rounded up, so that a device is never offered larger than it is.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import msgspec

from node_agent.report import MigProfile, Mode, NodeState, PluginResource


class ProcessKind(StrEnum):
    """Through which of NVML's lists a process was seen; a process in several is listed once."""

    COMPUTE = "compute"
    GRAPHICS = "graphics"
    MPS = "mps"


class ProcessReading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One process that holds a context on a device; ``pid`` is the host's, ``sm_ratio`` is 0..1."""

    pid: int
    memory_mib: int | None = None
    kind: ProcessKind = ProcessKind.COMPUTE
    sm_ratio: float | None = None


class MigReading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One MIG instance of a device, as the driver describes it; ``sm_active`` is a share of its own SMs, 0..1."""

    uuid: str
    profile: str
    gi_id: int | None = None
    ci_id: int | None = None
    placement_start: int | None = None
    placement_size: int | None = None
    sm_count: int | None = None
    total_mib: int | None = None
    reserved_mib: int | None = None
    used_mib: int | None = None
    sm_active: float | None = None
    processes: tuple[ProcessReading, ...] = ()


class Counters(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What health is judged by besides XID events (node-side.md 1.5, table Health).

    ``recovery_action``         NVML field 230: 0 none, above it an action that the device waits for
    ``remapped_correctable``    Ampere and later: rows of memory remapped after errors that could be corrected;
                                ``remapped_uncorrectable``: after errors that could not
    ``remap_pending``           Ampere and later: a row remap waits for a reset; ``remap_failed``: replace the board
    ``retired_pending``         Kepler to Turing: a page retirement waits for a reset
    ``clocks_event_reasons``    bit set of the reasons why clocks are held down
    ``fabric_state``            0 not applicable, 1 not started, 2 in progress, 3 completed
    ``energy_mj``               millijoule since the driver was loaded or the device was reset
    """

    ecc_corrected_volatile: int | None = None
    ecc_uncorrected_volatile: int | None = None
    ecc_corrected_aggregate: int | None = None
    ecc_uncorrected_aggregate: int | None = None
    remapped_correctable: int | None = None
    remapped_uncorrectable: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    retired_pending: bool | None = None
    retired_pages: int | None = None
    recovery_action: int | None = None
    clocks_event_reasons: int | None = None
    fabric_state: int | None = None
    energy_mj: int | None = None


class DeviceReading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One physical GPU in one sweep.

    ``lost``      the driver says that the device is gone, or needs a reset before it answers (``problem`` says which)
    ``problem``   why the device could not be read in full, in words; empty when it could
    ``utilisation``, ``memory_utilisation``   0..1
    ``sm_active``  0..1, mean share of SMs with a warp (GPM, Hopper and later)
    ``links``     UUIDs or fabric marks of what the device reaches by NVLink; equal or mutual ones form a group
    """

    uuid: str
    index: int | None = None
    name: str = ""
    architecture: int | None = None
    compute_capability: tuple[int, int] | None = None
    pci_bus_id: str = ""
    numa_node: int | None = None
    link_group: int | None = None
    fabric_clique: str = ""
    lost: bool = False
    problem: str = ""
    total_mib: int | None = None
    reserved_mib: int | None = None
    used_mib: int | None = None
    utilisation: float | None = None
    memory_utilisation: float | None = None
    sm_active: float | None = None
    sm_count: int | None = None
    temperature_celsius: int | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    mig_enabled: bool = False
    mig_devices: tuple[MigReading, ...] = ()
    mig_profiles: tuple[MigProfile, ...] = ()
    processes: tuple[ProcessReading, ...] = ()
    counters: Counters = Counters()


class XidEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One critical error that the driver announced; ``uuid`` is the physical device's."""

    uuid: str
    xid: int
    gi_id: int | None = None
    ci_id: int | None = None


class CallError(msgspec.Struct, frozen=True, kw_only=True):
    """How often one NVML call ended with one error code in this sweep."""

    call: str
    code: int
    count: int


class Readings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One sweep. ``events`` are those since the sweep before; ``age_s`` grows when no newer sweep could be had."""

    state: NodeState = NodeState.OK
    message: str = ""
    driver: str = ""
    cuda: str = ""
    devices: tuple[DeviceReading, ...] = ()
    events: tuple[XidEvent, ...] = ()
    errors: tuple[CallError, ...] = ()
    duration_s: float = 0.0
    age_s: float = 0.0


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """Who was given what on this node outside NVML: NVIDIA's device plugin, and the operator's sharing mode per UUID.

    ``plugin_uuids`` are all devices that the plugin advertises; ``modes`` holds what differs from time-slicing;
    ``not_ready`` are the UUIDs whose mode is set up but does not serve yet.
    """

    plugin: tuple[PluginResource, ...] = ()
    plugin_uuids: frozenset[str] = frozenset()
    modes: dict[str, Mode] = {}
    not_ready: frozenset[str] = frozenset()


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """Whose process it is: a container of a pod, or (``is_mps_server``) the MPS server that works for several."""

    pod_uid: str = ""
    container: str = ""
    is_mps_server: bool = False


class Reader(Protocol):
    """Takes one sweep over the node's GPUs. Never raises for a sick device or driver: the readings say so."""

    def read(self) -> Readings:
        """Return the newest sweep."""
        ...

    def wait(self, seconds: float) -> bool:
        """Wait, at most until the driver announces something; tell whether it did."""
        ...

    def close(self) -> None:
        """Let go of the driver; the reader is not used afterwards."""
        ...


class Attributor(Protocol):
    """Tells whose a process is."""

    def tenant(self, pid: int) -> Tenant | None:
        """Return the owner of a host process, or None where it belongs to no pod (or is gone)."""
        ...
