"""Costs in thousandths of a device as values of a scorer."""

from __future__ import annotations

import numpy as np

from scoring.candidates import Candidates, Values

STEP_MILLI = np.float32(20)
"""Costs closer than this count as equal, so that the fixed order of nodes decides: filling them one after the other."""

RANGE_MILLI = np.float32(40_000)
"""A cost of so much is worth 0, a gain of so much 1, nothing 0.5; far beyond what one device costs."""


def value_of(cost_milli: Values) -> Values:
    """Return 0..1 for a cost in thousandths of a device; costs closer than a step may be equal."""
    stepped = np.rint(cost_milli / STEP_MILLI) * STEP_MILLI
    value = np.float32(0.5) - stepped / (2 * RANGE_MILLI)
    bounded: Values = np.minimum(np.maximum(value, np.float32(0)), np.float32(1))
    return bounded


def taken_milli(candidates: Candidates) -> Values:
    """Return the thousandths that the ask takes off its node, for each device that might be chosen first."""
    return candidates.ask.count * (candidates.rest_milli - candidates.left_milli).astype(np.float32)
