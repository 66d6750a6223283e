"""Sufficiency: the weakest and cheapest device that is enough, so that strong ones stay for those who need them."""

from __future__ import annotations

import numpy as np

from scoring.candidates import Candidates, Values

CHEAPEST = 0.02
DEAREST = 32.0
"""Bounds of relative cost between which the scale runs; a seventh of a small GPU to the dearest whole one."""


def sufficiency(candidates: Candidates) -> Values:
    """Return 1 for the cheapest device down to 0 for the dearest, on a logarithmic scale of relative cost.

    A MIG instance costs its part of its GPU's SMs, so the smallest sufficient instance comes first.
    """
    fleet = candidates.fleet
    cost = np.ones(len(fleet.kinds) + 1, np.float32)
    cost[:-1] = [kind.cost for kind in fleet.kinds]
    price = cost[fleet.kind] * (np.maximum(fleet.capacity_milli, 1) / np.float32(1000))
    place = np.log(np.clip(price, CHEAPEST, DEAREST) / CHEAPEST) / np.float32(np.log(DEAREST / CHEAPEST))
    return (1.0 - place).astype(np.float32)
