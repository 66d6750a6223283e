"""Packing: fill devices and nodes that are in use before touching empty ones."""

from __future__ import annotations

import numpy as np

from scoring.candidates import Candidates, Values


def packing(candidates: Candidates) -> Values:
    """Return the mean of how full the device and how full its node would be, in thousandths of their capacity.

    A whole-device request leaves nothing on any device, so its node decides: the one with the fewest free devices.
    """
    device = 1.0 - candidates.left_milli() / np.float32(1000)
    return (device + node_fullness(candidates)) / np.float32(2)


def node_fullness(candidates: Candidates) -> Values:
    """Return how full each node's devices would be after the placement, 0..1, shape (nodes,)."""
    present = candidates.fleet.kind >= 0
    rest = np.where(present, candidates.remainder_milli(), 0)
    devices = np.maximum(present.sum(axis=0), 1)
    taken = candidates.ask.count * np.where(present, candidates.remainder_milli() - candidates.left_milli(), 0)
    after = np.maximum(rest.sum(axis=0) - taken, 0) / (devices * np.float32(1000))
    return (1.0 - np.minimum(after, 1.0)).astype(np.float32)
