"""Preference: products and architectures that the pod's author would rather have (``gpu-prefer``)."""

from __future__ import annotations

import numpy as np

from scoring.candidates import Candidates, Values
from scoring.conditions import preference_weight


def preference(candidates: Candidates) -> Values:
    """Return the author's weight for the device, as a part of the greatest weight; 1 if nothing is preferred."""
    fleet, preferences = candidates.fleet, candidates.request.preferences
    if not preferences:
        return np.ones(len(fleet), np.float32)
    weight = np.zeros(len(fleet.kinds) + 1, np.float32)
    weight[:-1] = [preference_weight(preferences, kind) for kind in fleet.kinds]
    return weight[fleet.kind]
