"""The only module that touches NVIDIA's binding: one adapter a metric, each answering with an ``Outcome``.

NVML says "no" in many ways and the binding adds some of its own (node-side.md 1.3); no adapter raises. Handles are
opaque to everybody else: they are neither hashable nor comparable, and die with the device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from ctypes import byref
from typing import Any, NewType, cast

import pynvml

from node_agent.nvml_decode import (
    Event,
    Memory,
    Process,
    fabric_of,
    field_value,
    instance_id,
    mapped,
    memory_of,
    processes_of,
    ratio,
    sm_time,
    text,
)
from node_agent.nvml_outcome import (
    BINDING_PROBLEM,
    FUNCTION_NOT_FOUND,
    INSUFFICIENT_SIZE,
    INVALID_ARGUMENT,
    KINDS,
    NOT_FOUND,
    NOT_SUPPORTED,
    SUCCESS,
    TIMEOUT,
    Kind,
    Outcome,
)

Handle = NewType("Handle", object)

_XID_EVENT = 0x8
_WATCHED_EVENTS = _XID_EVENT | 0x100 | 0x4000 | 0x8000
_FIELD_RECOVERY_ACTION = 230
_GPM_SM_ACTIVE = 2
_REPEATS = 3


class WrongBindingError(Exception):
    """Another package than nvidia-ml-py answers to the name ``pynvml``."""


def check_binding(path: str | None = None) -> None:
    """Refuse the abandoned ``pynvml`` package, whose directory hides NVIDIA's module of the same name."""
    found = str(pynvml.__file__ if path is None else path)
    if not found.endswith("pynvml.py"):
        raise WrongBindingError(
            f"{found} is the abandoned package 'pynvml', which reads process lists wrongly: "
            "uninstall pynvml, install nvidia-ml-py"
        )


class Nvml:
    """A session with the driver. ``errors`` counts calls that ended badly, by (call, code), until they are taken."""

    def __init__(self) -> None:
        self.errors: Counter[tuple[str, int]] = Counter()
        self._missing: set[tuple[str, int]] = set()

    def start(self) -> Outcome[None]:
        """Load the library and open the driver."""
        return self._ask("nvmlInitWithFlags", 0)

    def stop(self) -> Outcome[None]:
        """Close the driver."""
        return self._ask("nvmlShutdown")

    def driver_version(self) -> Outcome[str]:
        """Ask for the driver's version, ``580.95.05``."""
        return mapped(self._ask("nvmlSystemGetDriverVersion"), text)

    def cuda_version(self) -> Outcome[str]:
        """Ask for the CUDA version that the driver supports, ``13.0``."""
        return mapped(
            self._ask("nvmlSystemGetCudaDriverVersion_v2"), lambda each: f"{each // 1000}.{each % 1000 // 10}"
        )

    def device_count(self) -> Outcome[int]:
        """Ask how many physical devices there are."""
        return self._ask("nvmlDeviceGetCount")

    def handle(self, index: int) -> Outcome[Handle]:
        """Open a device by index."""
        return self._ask("nvmlDeviceGetHandleByIndex", index)

    def uuid(self, handle: Handle) -> Outcome[str]:
        """Ask for ``GPU-…`` or ``MIG-…``."""
        return mapped(self._ask("nvmlDeviceGetUUID", handle), text)

    def name(self, handle: Handle) -> Outcome[str]:
        """Ask for the marketing name; bytes that are not UTF-8 are replaced, not fatal."""
        outcome = self._ask("nvmlDeviceGetName", handle)
        return mapped(outcome, text)

    def architecture(self, handle: Handle) -> Outcome[int]:
        """Ask for NVML's architecture number; unknown ones are passed on."""
        return self._ask("nvmlDeviceGetArchitecture", handle)

    def compute_capability(self, handle: Handle) -> Outcome[tuple[int, int]]:
        """Ask for (major, minor)."""
        return mapped(
            self._ask("nvmlDeviceGetCudaComputeCapability", handle), lambda pair: (int(pair[0]), int(pair[1]))
        )

    def pci_bus_id(self, handle: Handle) -> Outcome[str]:
        """Ask for the address, ``00000000:65:00.0``."""
        return mapped(self._ask("nvmlDeviceGetPciInfo", handle), lambda info: text(info.busId))

    def core_count(self, handle: Handle) -> Outcome[int]:
        """Ask for CUDA cores; SMs follow from the compute capability."""
        return self._ask("nvmlDeviceGetNumGpuCores", handle)

    def fabric_state(self, handle: Handle) -> Outcome[tuple[int, str]]:
        """Ask for the NVLink fabric: (state, ``<cluster uuid>.<clique>`` where it spans nodes, else empty)."""
        if not hasattr(pynvml, "c_nvmlGpuFabricInfo_v3_t"):
            return Outcome(Kind.UNSUPPORTED, code=FUNCTION_NOT_FOUND)
        info = pynvml.c_nvmlGpuFabricInfo_v3_t()
        return mapped(self._ask("nvmlDeviceGetGpuFabricInfoV", handle, byref(info)), lambda _: fabric_of(info))

    def nvlink_peer(self, handle: Handle, link: int) -> Outcome[str]:
        """Ask where a link leads: the peer's PCI address, ``switch`` for an NVSwitch, empty for a link that is down."""
        state = self._ask("nvmlDeviceGetNvLinkState", handle, link)
        if state.kind is not Kind.VALUE or not state.value:
            return mapped(state, lambda _: "")
        kind = self._ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
        if kind.value == 2:
            return Outcome(Kind.VALUE, "switch")
        return mapped(self._ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, link), lambda info: text(info.busId))

    def memory(self, handle: Handle) -> Outcome[Memory]:
        """Ask for the memory, version 2; drivers before R510 only know version 1, which counts reserved as used."""
        outcome = self._ask("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2)
        if outcome.kind is Kind.UNSUPPORTED and outcome.code != NOT_SUPPORTED:
            outcome = self._ask("nvmlDeviceGetMemoryInfo", handle)
        return mapped(outcome, memory_of)

    def utilisation(self, handle: Handle) -> Outcome[tuple[float | None, float | None]]:
        """Ask for (kernel, memory) activity, 0..1; values beyond 100 % are drivers' slips and dropped."""
        outcome = self._ask("nvmlDeviceGetUtilizationRates", handle)
        return mapped(outcome, lambda rates: (ratio(rates.gpu), ratio(rates.memory)))

    def processes(self, handle: Handle, kind: str) -> Outcome[list[Process]]:
        """Ask for the ``Compute``, ``Graphics`` or ``MPSCompute`` processes; a list that grew is asked again."""
        for _ in range(_REPEATS):
            outcome = self._ask(f"nvmlDeviceGet{kind}RunningProcesses", handle)
            if outcome.code != INSUFFICIENT_SIZE:
                break
        return mapped(outcome, processes_of)

    def process_utilisation(self, handle: Handle, since_us: int) -> Outcome[tuple[dict[int, float], int]]:
        """Ask for SM time since a timestamp: (0..1 by pid, the newest timestamp). Nothing new is an empty value."""
        outcome = self._ask("nvmlDeviceGetProcessesUtilizationInfo", handle, since_us)
        if outcome.kind is Kind.UNSUPPORTED:
            outcome = self._ask("nvmlDeviceGetProcessUtilization", handle, since_us)
        if outcome.code in {NOT_FOUND, SUCCESS} and outcome.kind is not Kind.VALUE:
            return Outcome(Kind.VALUE, ({}, since_us))
        return mapped(outcome, lambda samples: sm_time(samples, since_us))

    def mig_enabled(self, handle: Handle) -> Outcome[bool]:
        """Ask whether MIG is on now."""
        return mapped(self._ask("nvmlDeviceGetMigMode", handle), lambda modes: bool(modes[0]))

    def mig_handles(self, handle: Handle) -> Outcome[list[Handle]]:
        """Ask for all instances; holes in the index are normal and skipped."""
        slots = self._ask("nvmlDeviceGetMaxMigDeviceCount", handle)
        if slots.kind is not Kind.VALUE:
            return cast("Outcome[list[Handle]]", slots)
        found = [self._ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, slot) for slot in range(slots.value or 0)]
        denied = next((each for each in found if each.kind in {Kind.DENIED, Kind.LOST}), None)
        if denied is not None and not any(each.kind is Kind.VALUE for each in found):
            return denied
        return Outcome(Kind.VALUE, [each.value for each in found if each.value is not None])

    def mig_ids(self, handle: Handle) -> tuple[int | None, int | None]:
        """Return (GPU instance, compute instance) as far as the driver tells."""
        instance = self._ask("nvmlDeviceGetGpuInstanceId", handle)
        return instance.value, self._ask("nvmlDeviceGetComputeInstanceId", handle).value

    def mig_sm_count(self, handle: Handle) -> Outcome[int]:
        """Ask for an instance's SMs."""
        return mapped(self._ask("nvmlDeviceGetAttributes", handle), lambda each: int(each.multiprocessorCount))

    def mig_placement(self, parent: Handle, gi_id: int) -> Outcome[tuple[int, int]]:
        """Ask for an instance's (start, size) in memory slices."""
        instance = self._ask("nvmlDeviceGetGpuInstanceById", parent, gi_id)
        if instance.kind is not Kind.VALUE:
            return cast("Outcome[tuple[int, int]]", instance)
        info = self._ask("nvmlGpuInstanceGetInfo", instance.value)
        return mapped(info, lambda each: (int(each.placement.start), int(each.placement.size)))

    def ecc_errors(self, handle: Handle, *, uncorrected: bool, aggregate: bool) -> Outcome[int]:
        """Ask for ECC errors since driver load, or over the board's life (``aggregate``)."""
        return self._ask("nvmlDeviceGetTotalEccErrors", handle, int(uncorrected), int(aggregate))

    def remapped_rows(self, handle: Handle) -> Outcome[tuple[bool, bool]]:
        """Ask for (pending, failed), Ampere and later."""
        return mapped(self._ask("nvmlDeviceGetRemappedRows", handle), lambda rows: (bool(rows[2]), bool(rows[3])))

    def retired_pending(self, handle: Handle) -> Outcome[bool]:
        """Ask whether a page retirement waits for a reset, Kepler to Turing."""
        return mapped(self._ask("nvmlDeviceGetRetiredPagesPendingStatus", handle), bool)

    def retired_pages(self, handle: Handle) -> Outcome[int]:
        """Ask for the number of retired pages, both causes."""
        counts = [mapped(self._ask("nvmlDeviceGetRetiredPages", handle, cause), len) for cause in (0, 1)]
        if any(each.kind is not Kind.VALUE for each in counts):
            return next(each for each in counts if each.kind is not Kind.VALUE)
        return Outcome(Kind.VALUE, sum(each.value or 0 for each in counts))

    def recovery_action(self, handle: Handle) -> Outcome[int]:
        """Ask what the device waits for: 0 nothing, else see health_rules (field 230, recent drivers)."""
        outcome = self._ask("nvmlDeviceGetFieldValues", handle, [_FIELD_RECOVERY_ACTION])
        if outcome.kind is not Kind.VALUE or outcome.value is None:
            return cast("Outcome[int]", outcome)
        field = cast("Any", outcome.value)[0]
        if field.nvmlReturn != SUCCESS:
            return Outcome(KINDS.get(field.nvmlReturn, Kind.UNSUPPORTED), code=field.nvmlReturn)
        return Outcome(Kind.VALUE, field_value(field))

    def clocks_event_reasons(self, handle: Handle) -> Outcome[int]:
        """Ask for the bits that say why clocks are held down; the name before R535 was another."""
        outcome = self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if outcome.code == FUNCTION_NOT_FOUND:
            return self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return outcome

    def temperature_celsius(self, handle: Handle) -> Outcome[int]:
        """Ask for the temperature of the chip."""
        return self._ask("nvmlDeviceGetTemperature", handle, 0)

    def power_watts(self, handle: Handle) -> Outcome[float]:
        """Ask for the power drawn."""
        return mapped(self._ask("nvmlDeviceGetPowerUsage", handle), lambda milliwatts: milliwatts / 1000)

    def power_limit_watts(self, handle: Handle) -> Outcome[float]:
        """Ask for the limit in force."""
        return mapped(self._ask("nvmlDeviceGetEnforcedPowerLimit", handle), lambda milliwatts: milliwatts / 1000)

    def energy_mj(self, handle: Handle) -> Outcome[int]:
        """Ask for millijoules since driver load or reset, Volta and later."""
        return self._ask("nvmlDeviceGetTotalEnergyConsumption", handle)

    def gpm_supported(self, handle: Handle) -> Outcome[bool]:
        """Ask whether SM activity can be sampled."""
        return mapped(self._ask("nvmlGpmQueryDeviceSupport", handle), lambda each: bool(each.isSupportedDevice))

    def gpm_sample(self, handle: Handle) -> Outcome[object]:
        """Take a sample; two of them, 100 ms or more apart, give an activity. Free it with ``gpm_free``."""
        sample = self._ask("nvmlGpmSampleAlloc")
        if sample.kind is not Kind.VALUE:
            return sample
        taken = self._ask("nvmlGpmSampleGet", handle, sample.value)
        if taken.kind is not Kind.VALUE:
            self.gpm_free(sample.value)
            return taken
        return sample

    def gpm_free(self, sample: object) -> None:
        """Give a sample back to the driver."""
        self._ask("nvmlGpmSampleFree", sample)

    def gpm_sm_active(self, first: object, second: object) -> Outcome[float]:
        """Compute the share of SMs in use between two samples, 0..1."""
        query = pynvml.c_nvmlGpmMetricsGet_t()
        query.version, query.numMetrics, query.sample1, query.sample2 = 1, 1, first, second
        query.metrics[0].metricId = _GPM_SM_ACTIVE
        outcome = self._ask("nvmlGpmMetricsGet", query)
        if outcome.kind is not Kind.VALUE or query.metrics[0].nvmlReturn != SUCCESS:
            return Outcome(Kind.UNSUPPORTED, code=int(query.metrics[0].nvmlReturn) or outcome.code)
        return Outcome(Kind.VALUE, ratio(query.metrics[0].value))

    def watch_events(self, handles: Iterable[Handle]) -> Outcome[object]:
        """Register every device that can announce XIDs and return the set to wait on."""
        event_set = self._ask("nvmlEventSetCreate")
        if event_set.kind is not Kind.VALUE:
            return event_set
        for handle in handles:
            supported = self._ask("nvmlDeviceGetSupportedEventTypes", handle)
            mask = (supported.value or 0) & _WATCHED_EVENTS
            if mask:
                self._ask("nvmlDeviceRegisterEvents", handle, mask, event_set.value)
        return event_set

    def wait_event(self, event_set: object, timeout_ms: int) -> Outcome[Event]:
        """Wait for one event; code TIMEOUT is the normal idle end."""
        outcome = self._ask("nvmlEventSetWait_v2", event_set, timeout_ms)
        if outcome.kind is not Kind.VALUE or outcome.value is None:
            return cast("Outcome[Event]", outcome)
        raw = cast("Any", outcome.value)
        uuid = self.uuid(raw.device).value or ""
        xid = int(raw.eventData) if raw.eventType == _XID_EVENT else None
        return Outcome(Kind.VALUE, Event(uuid, xid, instance_id(raw.gpuInstanceId), instance_id(raw.computeInstanceId)))

    def free_events(self, event_set: object) -> None:
        """Give an event set back."""
        self._ask("nvmlEventSetFree", event_set)

    def take_errors(self) -> Counter[tuple[str, int]]:
        """Return the counts since the last call, and begin anew."""
        taken, self.errors = self.errors, Counter()
        return taken

    def _ask(self, call: str, *arguments: object) -> Outcome[Any]:
        """Make one call and turn every way in which the binding can fail into an outcome (node-side.md 1.3)."""
        function = getattr(pynvml, call, None)
        if function is None or (call, len(arguments)) in self._missing:
            return Outcome(Kind.UNSUPPORTED, code=FUNCTION_NOT_FOUND)
        try:
            return Outcome(Kind.VALUE, function(*arguments))
        except pynvml.NVMLError as problem:
            return self._failed(call, int(problem.value), len(arguments))
        except (pynvml.NVMLLibraryMismatchError, AttributeError):
            return self._failed(call, FUNCTION_NOT_FOUND, len(arguments))
        except (TypeError, ValueError) as problem:
            if isinstance(problem, UnicodeDecodeError) and isinstance(problem.object, bytes):
                return Outcome(Kind.VALUE, problem.object)
            return self._failed(call, BINDING_PROBLEM, len(arguments))

    def _failed(self, call: str, code: int, argument_count: int) -> Outcome[Any]:
        if code == FUNCTION_NOT_FOUND:
            self._missing.add((call, argument_count))
        kind = KINDS.get(code, Kind.TRANSIENT)
        if kind is not Kind.UNSUPPORTED and code not in {SUCCESS, INVALID_ARGUMENT, NOT_FOUND, TIMEOUT}:
            self.errors[call, code] += 1
        return Outcome(kind, code=code)
