"""The last hour of every device, a sample a minute: what was booked and what it was busy with.

Kept as bytes beside the fleet, never on disk: 40,000 devices take about 7 MB. Longer histories are Prometheus' part.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scoring.fleet import NO_KIND, Fleet, Row

INTERVAL_S = 60.0
KEPT = 60
_UNKNOWN = 255
_MOST = 250

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class _Sample:
    """Per cent of each device's own size, ``_UNKNOWN`` where nothing is known; columns are slot first, as in Fleet."""

    at: float
    rows: Mapping[str, Row]
    uuids: tuple[tuple[str, ...], ...]
    compute: Bytes
    memory: Bytes
    load: Bytes

    def of(self, node: str, uuid: str) -> dict[str, object] | None:
        """Return what the sample says of a device; None where the device was not there."""
        row = self.rows.get(node)
        if row is None or uuid not in self.uuids[row]:
            return None
        slot = self.uuids[row].index(uuid)
        parts = {"compute": self.compute, "memory": self.memory, "load": self.load}
        return {"at": self.at, **{name: _known(int(column[slot, row])) for name, column in parts.items()}}


class DeviceTraces:
    """Samples of the whole fleet; the oldest makes room. ``wall`` is seconds since 1970."""

    def __init__(self, snapshot: Callable[[], Fleet], wall: Callable[[], float]) -> None:
        self._snapshot = snapshot
        self._wall = wall
        self._samples: deque[_Sample] = deque(maxlen=KEPT)

    async def round(self) -> None:
        """Take a sample."""
        fleet = self._snapshot()
        absent = fleet.kind == NO_KIND
        self._samples.append(
            _Sample(
                self._wall(),
                fleet.rows,
                fleet.uuids,
                _percent(fleet.booked_milli, fleet.capacity_milli, absent),
                _percent(fleet.booked_mib, fleet.capacity_mib, absent),
                _percent(fleet.load, np.ones_like(fleet.load), absent | np.isnan(fleet.load)),
            )
        )

    def of(self, node: str, uuid: str) -> list[dict[str, object]]:
        """Return what was seen of a device, the oldest first."""
        return [told for sample in self._samples if (told := sample.of(node, uuid)) is not None]


def _percent(part: npt.NDArray[np.generic], whole: npt.NDArray[np.generic], unknown: npt.NDArray[np.bool_]) -> Bytes:
    usable = ~unknown & (whole > np.zeros_like(whole))
    ratio = np.divide(part, whole, out=np.zeros(part.shape, dtype=np.float64), where=usable, dtype=np.float64)
    return np.where(usable, np.clip(np.rint(ratio * 100), 0, _MOST), _UNKNOWN).astype(np.uint8)


def _known(percent: int) -> float | None:
    return None if percent == _UNKNOWN else percent / 100
