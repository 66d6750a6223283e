"""Foresight: what a placement costs the pods to come, in thousandths of a device; the least costly comes first.

The cost is a weighted sum of

1. growth of fragmentation: FGD's measure after less before (``fragmentation``);
2. growth of the CPU shortage: a node with G devices' worth of GPU and C CPU free will strand about
   E[(kappa G + noise - C)+] / kappa of it, kappa = CPU that pods take with a device. FGD is blind here: CPU taken from
   an idle node harms no single typical pod, yet strands a device later. The noise is taken as logistic, for which the
   expectation is scale * log(1 + exp(mean / scale));
3. loss of worth: V(rest) - V(rest after), what the rest of the device could have been cut into (``worth``);
4. broken slots: of each shape that wants several untouched devices of one node, the slots that the placement breaks,
   times their devices and the odds that such slots run short; the dearest shape counts (``prospect``);
5. scarcity: thousandths taken, times how much tighter their kind is than the fleet (``prospect``).

Weights and their tuning are in docs/placement.md.
"""

from __future__ import annotations

import numpy as np

from scoring.candidates import Candidates, Values
from scoring.demand import Demand
from scoring.policies.fragmentation import fragmentation_gain
from scoring.prospect import Prospect
from scoring.request import WHOLE_MILLI

FRAGMENTATION = np.float32(0.1)
CPU_SHORTAGE = np.float32(1.0)
WORTH = np.float32(1.0)
SLOTS = np.float32(1.0)
SCARCITY = np.float32(16.0)
CPU_NOISE = 0.5
"""Variance of the CPU that pods will take, as a multiple of what independent pods would give."""

CHEAPEST_KIND = -0.5
DEAREST_KIND = 5.0
"""Bounds of how much looser or tighter than the fleet a kind may count."""

STEP_MILLI = np.float32(20)
"""Costs closer than this count as equal, so that the fixed order of nodes decides: filling them one after the other."""

HALF_COST_MILLI = np.float32(1000)
"""The value is 1/2 (1 - c / (|c| + 1000)): a cost of nothing is 0.5, of 1000 is 0.25."""


def foresight(candidates: Candidates) -> Values:
    """Return 0..1 for each device, 0.5 where nothing is lost or nothing is known of demand."""
    demand, prospect = candidates.outlook.demand, candidates.outlook.prospect
    if demand is None or prospect is None:
        return np.full(len(candidates.fleet), 0.5, np.float32)
    cost = -FRAGMENTATION * fragmentation_gain(candidates)
    cost = cost + CPU_SHORTAGE * _shortage_growth(candidates, demand)
    cost = cost + WORTH * _worth_lost(candidates, demand)
    cost = cost + SLOTS * _slots_broken(candidates, prospect)
    cost = cost + SCARCITY * _scarce_taken(candidates, prospect)
    cost = np.round(cost / STEP_MILLI) * STEP_MILLI
    return np.asarray(np.float32(0.5) - np.float32(0.5) * cost / (np.abs(cost) + HALF_COST_MILLI), np.float32)


def _taken(candidates: Candidates) -> Values:
    """Return the thousandths that the ask takes off its node for each device that might be chosen first."""
    return candidates.ask.count * (candidates.rest_milli - candidates.left_milli).astype(np.float32)


def _shortage_growth(candidates: Candidates, demand: Demand) -> Values:
    fleet = candidates.fleet
    gpu = candidates.rest_milli.sum(axis=0, dtype=np.int64).astype(np.float32)
    cpu = (fleet.cpu_capacity_milli - fleet.cpu_booked_milli).astype(np.float32)
    after = np.maximum(gpu - _taken(candidates), 0)
    return _shortage(after, cpu - np.float32(candidates.request.cpu_milli), demand) - _shortage(gpu, cpu, demand)


def _shortage(gpu_milli: Values, cpu_milli: Values, demand: Demand) -> Values:
    """Return the thousandths of devices that free CPU is expected not to reach."""
    devices = gpu_milli / np.float32(WHOLE_MILLI)
    mean = np.float32(demand.cpu_per_device) * devices - cpu_milli
    scale = np.sqrt(np.float32(demand.cpu_variance * CPU_NOISE) * devices) * np.float32(np.sqrt(3) / np.pi) + 1
    short = scale * np.logaddexp(np.float32(0), mean / scale)
    return np.asarray(short / np.float32(max(demand.cpu_per_device, 1)) * WHOLE_MILLI, np.float32)


def _worth_lost(candidates: Candidates, demand: Demand) -> Values:
    kind = candidates.outlook.known_kinds(candidates.fleet.kind)
    lost = demand.worth[kind, candidates.rest_milli] - demand.worth[kind, candidates.left_milli]
    whole = candidates.left_milli == 0
    return np.where(whole & (candidates.rest_milli == WHOLE_MILLI), np.float32(0), lost)


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


def _scarce_taken(candidates: Candidates, prospect: Prospect) -> Values:
    tighter = np.clip(prospect.tightness - 1, CHEAPEST_KIND, DEAREST_KIND).astype(np.float32)
    return tighter[candidates.outlook.known_kinds(candidates.fleet.kind)] * _taken(candidates)
