"""Sufficiency: the weakest and cheapest device that is enough, so that strong ones stay for those who need them."""

from __future__ import annotations

import numpy as np

from scoring.candidates import Candidates, Values
from scoring.catalog import DeviceKind

CHEAPEST = 0.05
DEAREST = 64.0
"""Bounds of relative cost (T4 = 1) of the scale: from a small MIG instance to twice the dearest whole device."""


def sufficiency(candidates: Candidates) -> Values:
    """Return 1 for the cheapest device down to 0 for the dearest, on a logarithmic scale of relative cost.

    A MIG instance costs its part of its GPU, so the smallest sufficient instance comes first.
    """
    return value_by_kind(candidates.fleet.kinds)[candidates.fleet.kind]


def value_by_kind(kinds: tuple[DeviceKind, ...]) -> Values:
    """Return the value of each kind, the last entry for absent devices."""
    value = np.ones(len(kinds) + 1, np.float32)
    cost = np.array([kind.cost for kind in kinds], np.float32)
    value[:-1] = 1.0 - np.log(np.clip(cost, CHEAPEST, DEAREST) / CHEAPEST) / np.log(DEAREST / CHEAPEST)
    return value
