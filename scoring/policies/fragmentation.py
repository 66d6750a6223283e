"""Fragmentation: the gradient descent of FGD, after which the pods to come can use most of what is left.

The measure and its tables are in ``outlook``; Weng et al., "Beware of Fragmentation", ATC 2023.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from scoring.candidates import Candidates, Values, over_devices
from scoring.outlook import Outlook
from scoring.request import WHOLE_MILLI

STEEPNESS_MILLI = np.float32(1000)
"""FGD squeezes the gain through 1 / (1 + exp(-gain / 1000)), gain in thousandths of a device."""


def fragmentation(candidates: Candidates) -> Values:
    """Return the squeezed fall of the node's fragmentation for each device, 0.5 where nothing changes."""
    outlook, fleet = candidates.outlook, candidates.fleet
    if outlook.unusable is None:
        return np.full(len(fleet), 0.5, np.float32)
    gain = fragmentation_gain(candidates)
    return np.asarray(1.0 / (1.0 + np.exp(-gain / STEEPNESS_MILLI)), np.float32)


def fragmentation_gain(candidates: Candidates) -> npt.NDArray[np.float32]:
    """Return by how many thousandths of a device the node's fragmentation falls; only where demand is known."""
    outlook, fleet, count = candidates.outlook, candidates.fleet, candidates.ask.count
    unusable = outlook.unusable
    if unusable is None:
        return np.zeros(candidates.fits.shape, np.float32)
    cpu_free = fleet.cpu_capacity_milli - fleet.cpu_booked_milli
    level = outlook.cpu_level(cpu_free)
    level_after = outlook.cpu_level(cpu_free - candidates.request.cpu_milli)
    kind = outlook.known_kinds(fleet.kind)
    rest, left = candidates.rest_milli, candidates.left_milli
    before = over_devices(unusable[kind, level, rest]) + _several(outlook, kind, level, rest)
    after_all = unusable[kind, level_after, rest]
    taken = unusable[kind, level_after, left] - after_all
    untouched_less = ((rest == WHOLE_MILLI) & (left < WHOLE_MILLI)).astype(np.int16) * count
    after = (
        over_devices(after_all) + np.float32(count) * taken + _several(outlook, kind, level_after, rest, untouched_less)
    )
    gain: npt.NDArray[np.float32] = before - after
    return gain


def _several(
    outlook: Outlook,
    kind: npt.NDArray[np.int16],
    level: npt.NDArray[np.intp],
    rest: npt.NDArray[np.int32],
    untouched_less: npt.NDArray[np.int16] | None = None,
) -> npt.NDArray[np.float32]:
    """Return what is unusable because too few untouched devices are left for shapes that ask several.

    Shape (nodes,), or that of ``untouched_less`` when given: one answer for each device that might be taken.
    """
    untouched = (rest == WHOLE_MILLI).sum(axis=0)
    if untouched_less is not None:
        untouched = np.maximum(untouched - untouched_less, 0)
    one_kind = kind.max(axis=0)
    total = np.zeros(untouched.shape, np.float32)
    for count, weight in outlook.several.items():
        total += np.where(untouched < count, weight[one_kind, level] * untouched * np.float32(WHOLE_MILLI), 0)
    return total
