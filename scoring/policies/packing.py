"""Packing: fill devices and nodes that are in use before touching empty ones."""

from __future__ import annotations

import numpy as np

from scoring.candidates import Candidates, Values
from scoring.request import WHOLE_MILLI


def packing(candidates: Candidates) -> Values:
    """Return the mean of how full of pods the device and its node would be, as parts of their capacity.

    A whole-device request leaves nothing on any device, so its node decides: the one with the fewest free devices.
    """
    device = np.float32(1) - candidates.left_milli.astype(np.float32) / np.float32(WHOLE_MILLI)
    full: Values = (device + node_fullness(candidates)) / np.float32(2)
    return full


def node_fullness(candidates: Candidates) -> Values:
    """Return how full each node's devices would be after the placement, 0..1, for each device taken."""
    present = candidates.fleet.kind >= 0
    devices = np.maximum(present.sum(axis=0, dtype=np.int16), 1)
    taken = candidates.ask.count * (candidates.rest_milli - candidates.left_milli)
    after = (candidates.rest_milli.sum(axis=0, dtype=np.int32) - taken) / (devices * np.float32(WHOLE_MILLI))
    full: Values = np.float32(1) - np.clip(after, np.float32(0), np.float32(1)).astype(np.float32)
    return full
