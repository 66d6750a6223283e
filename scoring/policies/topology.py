"""Topology: several devices of one container close together."""

from __future__ import annotations

import numpy as np

from scoring.candidates import Candidates, Values
from scoring.groups import holds_ask


def topology(candidates: Candidates) -> Values:
    """Return 1 where the device's NVLink group can take the whole ask, 0.5 where its NUMA node can, else 0.

    A single device is close to itself: 1 everywhere.
    """
    fleet, count = candidates.fleet, candidates.ask.count
    if count == 1:
        return np.ones(len(fleet), np.float32)
    value = np.where(holds_ask(fleet.numa, candidates.fits, count), np.float32(0.5), np.float32(0))
    return np.where(holds_ask(fleet.link, candidates.fits, count), np.float32(1), value)
