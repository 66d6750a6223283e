"""Questions about MIG: whether it is on, and which instances there are (node-side.md 1.5, MIG)."""

from __future__ import annotations

import os
from ctypes import byref, c_uint
from typing import Any, cast

import pynvml

from node_agent.nvml_asker import Asker, Handle
from node_agent.nvml_decode import mapped, text
from node_agent.nvml_outcome import INVALID_ARGUMENT, Kind, Outcome
from node_agent.report import MigProfile

_PROFILE_IDS = range(0x12)
"""Ids that NVML has given out so far; one past the end is an invalid argument, which ends the search earlier."""
_MAX_PLACEMENTS = 64


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

    def mig_profiles(self, handle: Handle) -> tuple[MigProfile, ...]:
        """Ask which shapes instances can have; an id that the product lacks is skipped, what is denied left out."""
        found = []
        for number in _PROFILE_IDS:
            info = self.ask("nvmlDeviceGetGpuInstanceProfileInfo", handle, number, 2)
            if info.code == INVALID_ARGUMENT:
                break
            if info.kind is Kind.VALUE:
                found.append(mapped(info, lambda each: self._profile(handle, each)).value)
        return tuple(each for each in found if each is not None)

    def _profile(self, handle: Handle, info: Any) -> MigProfile:  # noqa: ANN401 - a ctypes struct
        return MigProfile(
            profile=text(info.name).removeprefix("MIG "),
            sm_count=int(info.multiprocessorCount),
            total_mib=int(info.memorySizeMB),
            max_count=int(info.instanceCount),
            placements=self._placements(handle, int(info.id)),
        )

    def _placements(self, handle: Handle, profile_id: int) -> tuple[tuple[int, int], ...]:
        """Ask where instances of a profile can be; only root may (node-side.md 1.5, placements)."""
        if os.geteuid() != 0:
            return ()
        count, call = c_uint(0), "nvmlDeviceGetGpuInstancePossiblePlacements"
        asked = self.ask(call, handle, profile_id, None, byref(count))
        if asked.kind is not Kind.VALUE or not 0 < count.value <= _MAX_PLACEMENTS:
            return ()
        places = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
        if self.ask(call, handle, profile_id, places, byref(count)).kind is not Kind.VALUE:
            return ()
        return tuple((int(each.start), int(each.size)) for each in places[: count.value])
