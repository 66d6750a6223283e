"""Who holds memory on a device: the three process lists made one, with SM time where the driver tells it."""

from __future__ import annotations

from collections.abc import Iterable

from node_agent.nvml import Nvml
from node_agent.nvml_asker import Handle
from node_agent.nvml_decode import SHARED_WITH_HOST, Memory
from node_agent.nvml_outcome import Kind
from node_agent.readings import ProcessKind, ProcessReading

_LISTS = ((ProcessKind.COMPUTE, "Compute"), (ProcessKind.GRAPHICS, "Graphics"), (ProcessKind.MPS, "MPSCompute"))


class ProcessReader:
    """Remembers per device up to which moment SM time was read, and what each process had then."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._seen_us: dict[str, int] = {}
        self._loads: dict[str, dict[int, float]] = {}

    def read(self, handle: Handle, uuid: str, *, with_load: bool) -> tuple[ProcessReading, ...]:
        """Return each process once, in order of pid; one seen in several lists keeps its largest memory."""
        merged: dict[int, ProcessReading] = {}
        for kind, call in _LISTS:
            outcome = self._nvml.processes(handle, call)
            for process in outcome.value or () if outcome.kind is Kind.VALUE else ():
                known = merged.get(process.pid)
                memory_mib = _larger(known.memory_mib if known else None, process.memory_mib)
                merged[process.pid] = ProcessReading(
                    pid=process.pid, memory_mib=memory_mib, kind=known.kind if known else kind
                )
        loads = self._load(handle, uuid, merged) if with_load else {}
        return tuple(
            ProcessReading(pid=pid, memory_mib=each.memory_mib, kind=each.kind, sm_ratio=loads.get(pid))
            for pid, each in sorted(merged.items())
        )

    def _load(self, handle: Handle, uuid: str, merged: dict[int, ProcessReading]) -> dict[int, float]:
        outcome = self._nvml.process_utilisation(handle, self._seen_us.get(uuid, 0))
        if outcome.kind is not Kind.VALUE or outcome.value is None:
            self._loads.pop(uuid, None)
            return {}
        fresh, self._seen_us[uuid] = outcome.value
        # A sampled process without a new sample did nothing since; one that was never sampled stays unknown.
        before = self._loads.get(uuid, {})
        self._loads[uuid] = {pid: fresh.get(pid, 0.0) for pid in merged if pid in fresh or pid in before}
        return self._loads[uuid]


def used_mib_of(
    size: Memory | None, processes: Iterable[ProcessReading], capability: tuple[int, int] | None
) -> int | None:
    """Return the memory in use on a device, None where it is not known.

    Where GPU and host share their memory (GB10, Jetson), the driver's figure blames the host's use on the GPU; there
    the processes' own memory is what counts (node-side.md 6, rows 24 and 25).
    """
    if size is None:
        return None
    if capability not in SHARED_WITH_HOST:
        return size.used_mib
    held = [each.memory_mib for each in processes]
    return min(size.total_mib, sum(each for each in held if each is not None))


def _larger(first: int | None, second: int | None) -> int | None:
    known = [each for each in (first, second) if each is not None]
    return max(known, default=None)
