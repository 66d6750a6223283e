"""Load: devices that are measured to be idle first."""

from __future__ import annotations

import numpy as np

from scoring.candidates import Candidates, Values

UNKNOWN_LOAD = np.float32(0.5)
"""What a device counts as whose load nobody measured: neither idle nor busy."""

FOREIGN_PART = np.float32(0.25)
"""How much of the value memory of foreign processes decides; the measured load decides the rest."""


def load(candidates: Candidates) -> Values:
    """Return 1 for an idle device down to 0 for a busy one.

    Load is the EWMA of utilisation plus the compute of pods placed too recently to show in it. A device with memory
    held by processes that are nobody's pods is busier than it says.
    """
    fleet = candidates.fleet
    measured = np.where(np.isnan(fleet.load), UNKNOWN_LOAD, fleet.load)
    settling = fleet.settling_milli / np.maximum(fleet.capacity_milli, 1).astype(np.float32)
    busy = np.minimum(measured + settling, 1.0)
    foreign = np.clip(fleet.foreign_mib / np.maximum(fleet.capacity_mib, 1).astype(np.float32), 0.0, 1.0)
    return (1.0 - (1.0 - FOREIGN_PART) * busy - FOREIGN_PART * foreign).astype(np.float32)
