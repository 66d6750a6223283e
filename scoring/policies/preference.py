"""Preference: products and architectures that the pod's author would rather have (``gpu-prefer``)."""

from __future__ import annotations

import numpy as np

from scoring.candidates import Candidates, Values
from scoring.catalog import DeviceKind
from scoring.conditions import preference_weight
from scoring.request import PodRequest


def preference(candidates: Candidates) -> Values:
    """Return the author's weight for the device, as a part of the greatest weight; 1 if nothing is preferred."""
    fleet = candidates.fleet
    if not candidates.request.preferences:
        return np.ones(len(fleet), np.float32)
    return weight_by_kind(candidates.request, fleet.kinds)[fleet.kind]


def weight_by_kind(request: PodRequest, kinds: tuple[DeviceKind, ...]) -> Values:
    """Return the value of each kind, the last entry for absent devices."""
    if not request.preferences:
        return np.ones(len(kinds) + 1, np.float32)
    weight = np.zeros(len(kinds) + 1, np.float32)
    weight[:-1] = [preference_weight(request.preferences, kind) for kind in kinds]
    return weight
