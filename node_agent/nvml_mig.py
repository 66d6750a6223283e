"""Questions about MIG: whether it is on, and which instances there are (node-side.md 1.5, MIG)."""

from __future__ import annotations

from typing import cast

from node_agent.nvml_asker import Asker, Handle
from node_agent.nvml_decode import mapped
from node_agent.nvml_outcome import Kind, Outcome


class MigQuestions(Asker):
    """What can be asked of a device that may be split, and of its instances."""

    def mig_enabled(self, handle: Handle) -> Outcome[bool]:
        """Ask whether MIG is on now."""
        return mapped(self.ask("nvmlDeviceGetMigMode", handle), lambda modes: bool(modes[0]))

    def mig_handles(self, handle: Handle) -> Outcome[list[Handle]]:
        """Ask for all instances; holes in the index are normal and skipped."""
        slots = self.ask("nvmlDeviceGetMaxMigDeviceCount", handle)
        if slots.kind is not Kind.VALUE:
            return cast("Outcome[list[Handle]]", slots)
        found = [self.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, slot) for slot in range(slots.value or 0)]
        denied = next((each for each in found if each.kind in {Kind.DENIED, Kind.LOST}), None)
        if denied is not None and not any(each.kind is Kind.VALUE for each in found):
            return denied
        return Outcome(Kind.VALUE, [each.value for each in found if each.value is not None])

    def mig_ids(self, handle: Handle) -> tuple[int | None, int | None]:
        """Return (GPU instance, compute instance) as far as the driver tells."""
        instance = self.ask("nvmlDeviceGetGpuInstanceId", handle)
        return instance.value, self.ask("nvmlDeviceGetComputeInstanceId", handle).value

    def mig_sm_count(self, handle: Handle) -> Outcome[int]:
        """Ask for an instance's SMs."""
        return mapped(self.ask("nvmlDeviceGetAttributes", handle), lambda each: int(each.multiprocessorCount))

    def mig_placement(self, parent: Handle, gi_id: int) -> Outcome[tuple[int, int]]:
        """Ask for an instance's (start, size) in memory slices."""
        instance = self.ask("nvmlDeviceGetGpuInstanceById", parent, gi_id)
        if instance.kind is not Kind.VALUE:
            return cast("Outcome[tuple[int, int]]", instance)
        info = self.ask("nvmlGpuInstanceGetInfo", instance.value)
        return mapped(info, lambda each: (int(each.placement.start), int(each.placement.size)))
