"""Foresight: what a placement costs the pods to come, in thousandths of a device; the least costly comes first.

The cost is a weighted sum of

1. growth of fragmentation: FGD's measure after less before (``fragmentation``);
2. growth of the CPU shortage: a node with G devices' worth of GPU and C CPU free will strand about
   E[(kappa G + noise - C)+] / kappa of it, kappa = CPU that pods take with a device. FGD is blind here: CPU taken from
   an idle node harms no single typical pod, yet strands a device later. The noise is taken as logistic, for which the
   expectation is scale * log(1 + exp(mean / scale));
3. loss of worth: V(rest) - V(rest after), what the rest of the device could have been cut into (``worth``).

All of it follows from the node alone and from what is expected; what is scarce in the fleet is ``scarcity``. Weights
and their tuning are in docs/placement.md.
"""

from __future__ import annotations

import numpy as np

from scoring.candidates import Candidates, Values
from scoring.demand import Demand
from scoring.policies.cost import taken_milli, value_of
from scoring.policies.fragmentation import fragmentation_gain
from scoring.request import WHOLE_MILLI

FRAGMENTATION = np.float32(0.1)
CPU_SHORTAGE = np.float32(1.0)
WORTH = np.float32(1.0)
CPU_NOISE = 0.5
"""Variance of the CPU that pods will take, as a multiple of what independent pods would give."""


def foresight(candidates: Candidates) -> Values:
    """Return 0..1 for each device, 0.5 where nothing is lost or nothing is known of demand."""
    demand = candidates.outlook.demand
    if demand is None:
        return np.full(len(candidates.fleet), 0.5, np.float32)
    cost = -FRAGMENTATION * fragmentation_gain(candidates)
    cost = cost + CPU_SHORTAGE * _shortage_growth(candidates, demand)
    cost = cost + WORTH * _worth_lost(candidates, demand)
    return value_of(cost)


def _shortage_growth(candidates: Candidates, demand: Demand) -> Values:
    fleet = candidates.fleet
    gpu = candidates.rest_milli.sum(axis=0, dtype=np.int64).astype(np.float32)
    cpu = (fleet.cpu_capacity_milli - fleet.cpu_booked_milli).astype(np.float32)
    after = np.maximum(gpu - taken_milli(candidates), 0)
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
