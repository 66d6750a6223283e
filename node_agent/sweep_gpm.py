"""What share of its SMs a device really uses: GPM's samples, two of which make a value (node-side.md 1.5, GPM).

Hopper and later. It is the only measured load of a MIG instance: NVML's utilisation does not exist there.
"""

from __future__ import annotations

from collections.abc import Iterable

from node_agent.nvml import Nvml
from node_agent.nvml_asker import Handle
from node_agent.nvml_outcome import Outcome


class GpmReader:
    """Keeps the last sample of each device and instance; the driver's memory behind it is given back."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._samples: dict[str, object] = {}

    def read(self, uuid: str, handle: Handle) -> float | None:
        """Return the activity of a whole device since the last call, 0..1; None at first and where it is not told."""
        return self._activity(uuid, self._nvml.gpm_sample(handle))

    def read_instance(self, uuid: str, parent: Handle, gi_id: int) -> float | None:
        """Return the activity within a GPU instance, 1 being all SMs of the instance."""
        return self._activity(uuid, self._nvml.gpm_instance_sample(parent, gi_id))

    def keep(self, uuids: Iterable[str]) -> None:
        """Drop the samples of all other devices."""
        for uuid in self._samples.keys() - set(uuids):
            self._nvml.gpm_free(self._samples.pop(uuid))

    def _activity(self, uuid: str, taken: Outcome[object]) -> float | None:
        before = self._samples.pop(uuid, None)
        if taken.value is not None:
            self._samples[uuid] = taken.value
        if before is None:
            return None
        active = None if taken.value is None else self._nvml.gpm_sm_active(before, taken.value).value
        self._nvml.gpm_free(before)
        return active
