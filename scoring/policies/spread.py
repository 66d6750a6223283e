"""Spread: take devices and nodes with the most room left."""

from __future__ import annotations

import numpy as np

from scoring.candidates import Candidates, Values
from scoring.policies.packing import packing


def spread(candidates: Candidates) -> Values:
    """Return how empty the device and its node would stay: the opposite of packing."""
    return np.float32(1) - packing(candidates)
