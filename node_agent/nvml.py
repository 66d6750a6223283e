"""The only module that touches NVIDIA's binding: one adapter a metric, each answering with an ``Outcome``.

NVML says "no" in many ways and the binding adds some of its own (node-side.md 1.3); no adapter raises. Handles are
opaque to everybody else: they are neither hashable nor comparable, and die with the device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from ctypes import byref
from functools import partial
from typing import Any, cast

import pynvml

from node_agent.nvml_asker import Handle
from node_agent.nvml_decode import (
    Event,
    Memory,
    Process,
    fabric_of,
    instance_id,
    mapped,
    memory_of,
    processes_of,
    ratio,
    sm_time,
    text,
)
from node_agent.nvml_health import HealthQuestions
from node_agent.nvml_mig import MigQuestions
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
    VERSION_MISMATCH,
    Kind,
    Outcome,
)

_XID_EVENT = 0x8
_WATCHED_EVENTS = _XID_EVENT | 0x100 | 0x4000 | 0x8000
_GPM_SM_ACTIVE = 2
_REPEATS = 3
_FABRIC_STRUCTS = ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t")
"""Newest first; a driver that does not accept one is asked with the older (node-side.md 1.3, code 25)."""


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


class Nvml(MigQuestions, HealthQuestions):
    """A session with the driver. ``errors`` counts calls that ended badly, by (call, code), until they are taken."""

    def __init__(self) -> None:
        self.errors: Counter[tuple[str, int]] = Counter()
        self._missing: set[tuple[str, int]] = set()

    def start(self) -> Outcome[None]:
        """Load the library and open the driver."""
        return self.ask("nvmlInitWithFlags", 0)

    def stop(self) -> Outcome[None]:
        """Close the driver."""
        return self.ask("nvmlShutdown")

    def driver_version(self) -> Outcome[str]:
        """Ask for the driver's version, ``580.95.05``."""
        return mapped(self.ask("nvmlSystemGetDriverVersion"), text)

    def cuda_version(self) -> Outcome[str]:
        """Ask for the CUDA version that the driver supports, ``13.0``."""
        return mapped(self.ask("nvmlSystemGetCudaDriverVersion_v2"), lambda each: f"{each // 1000}.{each % 1000 // 10}")

    def device_count(self) -> Outcome[int]:
        """Ask how many physical devices there are."""
        return self.ask("nvmlDeviceGetCount")

    def handle(self, index: int) -> Outcome[Handle]:
        """Open a device by index."""
        return self.ask("nvmlDeviceGetHandleByIndex", index)

    def uuid(self, handle: Handle) -> Outcome[str]:
        """Ask for ``GPU-…`` or ``MIG-…``."""
        return mapped(self.ask("nvmlDeviceGetUUID", handle), text)

    def name(self, handle: Handle) -> Outcome[str]:
        """Ask for the marketing name; bytes that are not UTF-8 are replaced, not fatal."""
        outcome = self.ask("nvmlDeviceGetName", handle)
        return mapped(outcome, text)

    def architecture(self, handle: Handle) -> Outcome[int]:
        """Ask for NVML's architecture number; unknown ones are passed on."""
        return self.ask("nvmlDeviceGetArchitecture", handle)

    def compute_capability(self, handle: Handle) -> Outcome[tuple[int, int]]:
        """Ask for (major, minor)."""
        return mapped(self.ask("nvmlDeviceGetCudaComputeCapability", handle), lambda pair: (int(pair[0]), int(pair[1])))

    def pci_bus_id(self, handle: Handle) -> Outcome[str]:
        """Ask for the address, ``00000000:65:00.0``."""
        return mapped(self.ask("nvmlDeviceGetPciInfo", handle), lambda info: text(info.busId))

    def core_count(self, handle: Handle) -> Outcome[int]:
        """Ask for CUDA cores; SMs follow from the compute capability."""
        return self.ask("nvmlDeviceGetNumGpuCores", handle)

    def fabric_state(self, handle: Handle) -> Outcome[tuple[int, str]]:
        """Ask for the NVLink fabric: (state, ``<cluster uuid>.<clique>`` where it spans nodes, else empty)."""
        outcome: Outcome[tuple[int, str]] = Outcome(Kind.UNSUPPORTED, code=FUNCTION_NOT_FOUND)
        for struct in _FABRIC_STRUCTS:
            info = getattr(pynvml, struct)() if hasattr(pynvml, struct) else None
            if info is not None:
                asked = self.ask("nvmlDeviceGetGpuFabricInfoV", handle, byref(info))
                outcome = mapped(asked, partial(_fabric, info))
            if outcome.code != VERSION_MISMATCH:
                break
        return outcome

    def common_ancestor(self, first: Handle, second: Handle) -> Outcome[int]:
        """Ask how close two devices are on the bus: 0 one board, 10..30 one host bridge, 40 one NUMA node, 50 none."""
        return mapped(self.ask("nvmlDeviceGetTopologyCommonAncestor", first, second), int)

    def nvlink_peer(self, handle: Handle, link: int) -> Outcome[str]:
        """Ask where a link leads: the peer's PCI address, ``switch`` for an NVSwitch, empty for a link that is down."""
        state = self.ask("nvmlDeviceGetNvLinkState", handle, link)
        if state.kind is not Kind.VALUE or not state.value:
            return mapped(state, lambda _: "")
        kind = self.ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
        if kind.value == 2:
            return Outcome(Kind.VALUE, "switch")
        return mapped(self.ask("nvmlDeviceGetNvLinkRemotePciInfo", handle, link), lambda info: text(info.busId))

    def memory(self, handle: Handle) -> Outcome[Memory]:
        """Ask for the memory, version 2; drivers before R510 only know version 1, which counts reserved as used."""
        outcome = self.ask("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2)
        if outcome.kind is Kind.UNSUPPORTED and outcome.code != NOT_SUPPORTED:
            outcome = self.ask("nvmlDeviceGetMemoryInfo", handle)
        return mapped(outcome, memory_of)

    def utilisation(self, handle: Handle) -> Outcome[tuple[float | None, float | None]]:
        """Ask for (kernel, memory) activity, 0..1; values beyond 100 % are drivers' slips and dropped."""
        outcome = self.ask("nvmlDeviceGetUtilizationRates", handle)
        return mapped(outcome, lambda rates: (ratio(rates.gpu), ratio(rates.memory)))

    def processes(self, handle: Handle, kind: str) -> Outcome[list[Process]]:
        """Ask for the ``Compute``, ``Graphics`` or ``MPSCompute`` processes; a list that grew is asked again."""
        for _ in range(_REPEATS):
            outcome = self.ask(f"nvmlDeviceGet{kind}RunningProcesses", handle)
            if outcome.code != INSUFFICIENT_SIZE:
                break
        return mapped(outcome, processes_of)

    def process_utilisation(self, handle: Handle, since_us: int) -> Outcome[tuple[dict[int, float], int]]:
        """Ask for SM time since a timestamp: (0..1 by pid, the newest timestamp). Nothing new is an empty value."""
        outcome = self.ask("nvmlDeviceGetProcessesUtilizationInfo", handle, since_us)
        if outcome.kind is Kind.UNSUPPORTED:
            outcome = self.ask("nvmlDeviceGetProcessUtilization", handle, since_us)
        if outcome.code in {NOT_FOUND, SUCCESS} and outcome.kind is not Kind.VALUE:
            return Outcome(Kind.VALUE, ({}, since_us))
        return mapped(outcome, lambda samples: sm_time(samples, since_us))

    def gpm_supported(self, handle: Handle) -> Outcome[bool]:
        """Ask whether SM activity can be sampled."""
        return mapped(self.ask("nvmlGpmQueryDeviceSupport", handle), lambda each: bool(each.isSupportedDevice))

    def gpm_sample(self, handle: Handle) -> Outcome[object]:
        """Take a sample; two of them, 100 ms or more apart, give an activity. Free it with ``gpm_free``."""
        return self._gpm_sample("nvmlGpmSampleGet", handle)

    def gpm_instance_sample(self, parent: Handle, gi_id: int) -> Outcome[object]:
        """Take a sample of one GPU instance."""
        return self._gpm_sample("nvmlGpmMigSampleGet", parent, gi_id)

    def _gpm_sample(self, call: str, *whose: object) -> Outcome[object]:
        sample = self.ask("nvmlGpmSampleAlloc")
        if sample.kind is not Kind.VALUE:
            return sample
        taken = self.ask(call, *whose, sample.value)
        if taken.kind is not Kind.VALUE:
            self.gpm_free(sample.value)
            return taken
        return sample

    def gpm_free(self, sample: object) -> None:
        """Give a sample back to the driver."""
        self.ask("nvmlGpmSampleFree", sample)

    def gpm_sm_active(self, first: object, second: object) -> Outcome[float]:
        """Compute the share of SMs in use between two samples, 0..1."""
        query = pynvml.c_nvmlGpmMetricsGet_t()
        query.version, query.numMetrics, query.sample1, query.sample2 = 1, 1, first, second
        query.metrics[0].metricId = _GPM_SM_ACTIVE
        outcome = self.ask("nvmlGpmMetricsGet", query)
        if outcome.kind is not Kind.VALUE or query.metrics[0].nvmlReturn != SUCCESS:
            return Outcome(Kind.UNSUPPORTED, code=int(query.metrics[0].nvmlReturn) or outcome.code)
        return Outcome(Kind.VALUE, ratio(query.metrics[0].value))

    def watch_events(self, handles: Iterable[Handle]) -> Outcome[object]:
        """Register every device that can announce XIDs and return the set to wait on."""
        event_set = self.ask("nvmlEventSetCreate")
        if event_set.kind is not Kind.VALUE:
            return event_set
        for handle in handles:
            supported = self.ask("nvmlDeviceGetSupportedEventTypes", handle)
            mask = (supported.value or 0) & _WATCHED_EVENTS
            if mask:
                self.ask("nvmlDeviceRegisterEvents", handle, mask, event_set.value)
        return event_set

    def wait_event(self, event_set: object, timeout_ms: int) -> Outcome[Event]:
        """Wait for one event; code TIMEOUT is the normal idle end."""
        outcome = self.ask("nvmlEventSetWait_v2", event_set, timeout_ms)
        if outcome.kind is not Kind.VALUE or outcome.value is None:
            return cast("Outcome[Event]", outcome)
        raw = cast("Any", outcome.value)
        uuid = self.uuid(raw.device).value or ""
        xid = int(raw.eventData) if raw.eventType == _XID_EVENT else None
        return Outcome(Kind.VALUE, Event(uuid, xid, instance_id(raw.gpuInstanceId), instance_id(raw.computeInstanceId)))

    def free_events(self, event_set: object) -> None:
        """Give an event set back."""
        self.ask("nvmlEventSetFree", event_set)

    def take_errors(self) -> Counter[tuple[str, int]]:
        """Return the counts since the last call, and begin anew."""
        taken, self.errors = self.errors, Counter()
        return taken

    def ask(self, call: str, *arguments: object) -> Outcome[Any]:
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


def _fabric(info: Any, _answer: object) -> tuple[int, str]:  # noqa: ANN401 - a ctypes struct
    """Read the struct that the driver filled in; the binding's own answer is only a code."""
    return fabric_of(info)
