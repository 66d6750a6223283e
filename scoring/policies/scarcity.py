"""Scarcity: keep what the fleet runs short of for the pods that need it.

The cost, in thousandths of a device, is a weighted sum of

1. scarce kinds: thousandths taken, times the odds that pods which accept only such kinds use them up. Who can go
   anywhere pays to enter and so goes where nobody else must: Littlewood's rule for seats that two classes want
   ("Forecasting and control of passenger bookings", AGIFORS 1972);
2. broken slots: of each shape that wants several untouched devices of one node, the slots that the placement breaks,
   times their devices and the odds that such slots run short; the dearest shape counts.

The odds are those of ``prospect``: of the whole fleet, worked out every so many placements.
"""

from __future__ import annotations

import numpy as np

from scoring.candidates import Candidates, Values
from scoring.policies.cost import taken_milli, value_of
from scoring.prospect import Prospect
from scoring.request import WHOLE_MILLI

SLOTS = np.float32(1.0)
KINDS = np.float32(8.0)


def scarcity(candidates: Candidates) -> Values:
    """Return 0..1 for each device, 0.5 where nothing scarce is taken or nothing is known of demand."""
    prospect = candidates.outlook.prospect
    if prospect is None:
        return np.full(len(candidates.fleet), 0.5, np.float32)
    cost = KINDS * _scarce_taken(candidates, prospect)
    if prospect.slots:
        cost = cost + SLOTS * _slots_broken(candidates, prospect)
    return value_of(cost)


def _scarce_taken(candidates: Candidates, prospect: Prospect) -> Values:
    return prospect.short[candidates.outlook.known_kinds(candidates.fleet.kind)] * taken_milli(candidates)


def _slots_broken(candidates: Candidates, prospect: Prospect) -> Values:
    fleet = candidates.fleet
    untouched = (candidates.rest_milli == WHOLE_MILLI).sum(axis=0)
    breaks = (candidates.rest_milli == WHOLE_MILLI) & (candidates.left_milli < WHOLE_MILLI)
    cpu = np.maximum(fleet.cpu_capacity_milli - fleet.cpu_booked_milli, 0)
    cpu_after = np.maximum(cpu - candidates.request.cpu_milli, 0)
    fewer = np.maximum(untouched - candidates.ask.count, 0)
    kind = candidates.outlook.known_kinds(fleet.kind).max(axis=0)
    dearest = np.zeros(breaks.shape, np.float32)
    for shape, odds in prospect.slots:
        each = max(shape.cpu_milli, 1)
        before = np.minimum(untouched // shape.count, cpu // each)
        kept = before - np.minimum(untouched // shape.count, cpu_after // each)
        broken = before - np.minimum(fewer // shape.count, cpu_after // each)
        price = np.float32(odds * shape.count * WHOLE_MILLI) * shape.kinds[kind]
        dearest = np.maximum(dearest, price * np.where(breaks, broken, kept))
    return dearest.astype(np.float32)
