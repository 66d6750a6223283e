"""What is expected of the pods to come, worked out once so that scoring a device is a look-up.

The fragmentation measure is FGD's (Weng et al., "Beware of Fragmentation", ATC 2023): F_n(M) is what of node n's free
GPU a pod drawn from the mix M cannot use, on average. For shape m with probability p_m, r_d the rest of device d in
thousandths, a_m what m needs of such a device:

    m asks no GPU, does not match the device, or the node lacks the CPU   F_n(m) = sum of r_d
    m asks one device (a share or a whole one)                            F_n(m) = sum of r_d where r_d < a_m
    m asks k whole devices, the node has k untouched ones                 F_n(m) = sum of r_d where r_d < 1000
    m asks k whole devices, the node has fewer                            F_n(m) = sum of r_d

All but the last line depend on one device at a time, given its kind and which shapes the node's free CPU admits. So for
every kind and every CPU level there is a table over r = 0..1000, and the last line needs the untouched devices only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from scoring.catalog import DeviceKind
from scoring.demand import Demand, demand_of
from scoring.fleet import Fleet
from scoring.prospect import Prospect, prospect_of
from scoring.request import WHOLE_MILLI
from scoring.shape_needs import need_on_kind
from scoring.workload import Mix

TYPICAL_SHARE = 0.95
"""The part of all pods whose shapes are planned for, FGD's own choice."""

MOST_LEVELS = 64
"""CPU asks that are told apart: with every pod its own, the tables of a hundred kinds would take half a gigabyte."""

_RESTS = np.arange(WHOLE_MILLI + 1, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Outlook:
    """Tables made from a mix for the kinds of a fleet.

    ``cpu_levels``     ascending CPU asks of the shapes, 1/1000 core; level b = how many of them the free CPU admits
    ``unusable``       shape (kinds + 1, levels + 1, 1001): expected unusable part of a device's rest; row 0, of zeros,
                       is for absent devices and for kinds that came after the outlook was made
    ``several``        device count k > 1 -> probability of such shapes, shape (kinds + 1, levels + 1)
    ``demand``         what pods will want in numbers; None where nothing is known
    ``prospect``       what is scarce in the fleet: ``before`` puts it in
    """

    cpu_levels: npt.NDArray[np.int64]
    unusable: npt.NDArray[np.float32] | None = None
    several: dict[int, npt.NDArray[np.float32]] = field(default_factory=dict)
    demand: Demand | None = None
    prospect: Prospect | None = None

    @classmethod
    def empty(cls) -> Outlook:
        """Return the outlook of one who has seen no pod."""
        return cls(np.zeros(0, np.int64))

    @classmethod
    def of(cls, mix: Mix, kinds: tuple[DeviceKind, ...]) -> Outlook:
        """Work the tables out: (kinds + 1) * (CPU levels + 1) * 1001 values."""
        typical = mix.covering(TYPICAL_SHARE)
        if not typical.shapes or not kinds:
            return cls.empty()
        levels = _levels(np.unique(np.array([shape.cpu_milli for shape, _ in typical.shapes], np.int64)))
        unusable = np.zeros((len(kinds) + 1, len(levels) + 1, WHOLE_MILLI + 1), np.float32)
        several: dict[int, npt.NDArray[np.float32]] = {}
        for number, kind in enumerate(kinds, start=1):
            unusable[number, 0] = _RESTS
            for shape, weight in typical.shapes:
                admitted = int(np.searchsorted(levels, shape.cpu_milli)) + 1
                need = need_on_kind(shape, kind)
                if need is None:
                    continue
                unusable[number, admitted, need:] -= np.float32(weight) * _RESTS[need:]
                if shape.count > 1:
                    table = several.setdefault(shape.count, np.zeros(unusable.shape[:2], np.float32))
                    table[number, admitted:] += weight
        np.cumsum(unusable, axis=1, dtype=np.float32, out=unusable)
        return cls(levels, unusable, several, demand_of(mix, kinds))

    def before(self, fleet: Fleet) -> Outlook:
        """Return the outlook with what is scarce in the fleet as it is now; linear in devices."""
        return self if self.demand is None else replace(self, prospect=prospect_of(self.demand, fleet))

    def known_kinds(self, kind: npt.NDArray[np.int16]) -> npt.NDArray[np.int16]:
        """Return the rows of the tables for a column of kinds."""
        known = 0 if self.unusable is None else len(self.unusable) - 1
        return np.where(kind < known, kind + 1, 0).astype(np.int16)

    @property
    def knows_demand(self) -> bool:
        """Return whether any shape is planned for."""
        return self.unusable is not None

    def cpu_level(self, cpu_free_milli: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
        """Return for each node how many CPU levels its free CPU admits."""
        return np.searchsorted(self.cpu_levels, cpu_free_milli, side="right")


def _levels(asks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return at most ``MOST_LEVELS`` of ascending CPU asks, the largest among them; others count as the next above."""
    if len(asks) <= MOST_LEVELS:
        return asks
    return asks[np.linspace(0, len(asks) - 1, MOST_LEVELS).round().astype(np.intp)]
