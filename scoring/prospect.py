"""What is scarce in the fleet as it is now, for the demand that is expected: prices and odds.

Worked out every so many placements, not for every one: it looks at the fleet as a whole, and so must never be part of
what one node and five thousand are judged by differently. Whoever scores is handed one prospect for all nodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scoring.demand import Demand, Group, SlotShape
from scoring.fleet import BoolArray, Fleet
from scoring.needs import remainder_milli
from scoring.request import WHOLE_MILLI

SAFETY = 5.0
"""Standard deviations of the expected number of pods for which slots are kept: who waits for a slot to come back waits
long, and keeping one costs little while there are others."""

DEMAND_SPREAD = 0.3
"""Standard deviation of the demand that will come for a kind, as a part of what is expected: nobody knows how many pods
will come before others go."""

_NEGLIGIBLE = 1e-3
_MOST_UNIONS = 4096


@dataclass(frozen=True, slots=True)
class Prospect:
    """``short``  the odds, 0..1, that pods which can only go to such kinds use each up, shape (kinds + 1,).

    ``slots``  shapes of several devices with the odds, 0..1, that their slots run short; those without odds left out.
    """

    short: npt.NDArray[np.float32]
    slots: tuple[tuple[SlotShape, float], ...] = ()


@dataclass(frozen=True, slots=True)
class _Supply:
    """Free thousandths, free CPU and untouched devices of every node that takes pods, and the table row of its kind."""

    kind: npt.NDArray[np.intp]
    gpu_milli: npt.NDArray[np.float64]
    cpu_milli: npt.NDArray[np.float64]
    untouched: npt.NDArray[np.int64]

    def devices(self, kinds: BoolArray, cpu_per_device: float) -> float:
        """Return the thousandths that pods of so much CPU can use on nodes of these kinds."""
        here = kinds[self.kind]
        reached = self.cpu_milli[here] / max(cpu_per_device, 1.0) * WHOLE_MILLI
        return float(np.minimum(self.gpu_milli[here], reached).sum())


def prospect_of(demand: Demand, fleet: Fleet) -> Prospect:
    """Return what is scarce; linear in devices, plus the unions of at most 32 groups of demand (4,096)."""
    supply = _supply(demand, fleet)
    everywhere = np.ones(len(demand.worth), np.bool_)
    total = supply.devices(everywhere, demand.cpu_per_device)
    pods = total / max(demand.gpu_milli_per_pod, 1.0)
    short = [_chance((density - 1) / DEMAND_SPREAD) for density in _tightness(demand, supply, total)]
    return Prospect(np.array(short, np.float32), _odds(demand, supply, pods))


def _chance(deviations: float) -> float:
    """Return the odds of at most so many standard deviations, normally distributed."""
    return 0.5 * (1 + math.erf(deviations / math.sqrt(2)))


def _supply(demand: Demand, fleet: Fleet) -> _Supply:
    rest = remainder_milli(fleet, fleet.capacity_mib - fleet.booked_mib, fleet.capacity_milli - fleet.booked_milli)
    kind = fleet.kind.max(axis=0, initial=-1)
    known = np.where(kind < len(demand.worth) - 1, kind + 1, 0)
    return _Supply(
        known.astype(np.intp),
        rest.sum(axis=0).astype(np.float64),
        np.maximum(fleet.cpu_capacity_milli - fleet.cpu_booked_milli, 0).astype(np.float64),
        (rest == WHOLE_MILLI).sum(axis=0),
    )


def _tightness(demand: Demand, supply: _Supply, total: float) -> list[float]:
    """Return the demand of choosy pods over the supply of each kind, 0 where no choosy pod goes.

    Choosy is who does not accept every kind of the fleet. Find the set of kinds with the most choosy demand that can go
    nowhere else for its supply, then the next among the rest: demand that may leave such a set is expected to.
    """
    tightness = [0.0] * len(demand.worth)
    groups = [group for group in demand.groups if not group.kinds[supply.kind[supply.kind > 0]].all()]
    while groups:
        densest, density = None, -1.0
        for union in _unions(groups):
            inside = [group for group in groups if not (group.kinds & ~union).any()]
            share = sum(group.share for group in inside)
            cpu = sum(group.share * group.cpu_per_device for group in inside) / share
            found = share * total / max(supply.devices(union, cpu), 1.0)
            if found > density:
                densest, density = union, found
        assert densest is not None
        for kind in np.flatnonzero(densest):
            tightness[kind] = density
        groups = _without(groups, densest)
    return tightness


def _unions(groups: list[Group]) -> list[BoolArray]:
    unions: dict[bytes, BoolArray] = {}
    for group in groups:
        for union in (*unions.values(), np.zeros_like(group.kinds)):
            joined = union | group.kinds
            unions.setdefault(joined.tobytes(), joined)
        if len(unions) > _MOST_UNIONS:
            break
    return list(unions.values())


def _without(groups: list[Group], kinds: BoolArray) -> list[Group]:
    left: dict[bytes, Group] = {}
    for group in groups:
        rest = group.kinds & ~kinds
        if rest.any():
            known = left.get(rest.tobytes())
            alone = Group(rest, group.share, group.cpu_per_device)
            left[rest.tobytes()] = alone if known is None else _joined(known, alone)
    return list(left.values())


def _joined(first: Group, second: Group) -> Group:
    share = first.share + second.share
    cpu = (first.share * first.cpu_per_device + second.share * second.cpu_per_device) / share
    return Group(first.kinds, share, cpu)


def _odds(demand: Demand, supply: _Supply, pods: float) -> tuple[tuple[SlotShape, float], ...]:
    found = []
    for shape in demand.slots:
        here = shape.kinds[supply.kind]
        by_cpu = supply.cpu_milli[here] // max(shape.cpu_milli, 1)
        slots = float(np.minimum(supply.untouched[here] // shape.count, by_cpu).sum())
        wanted = pods * shape.share
        deviations = (wanted - slots) / math.sqrt(wanted + 1) + SAFETY
        odds = _chance(deviations)
        if odds > _NEGLIGIBLE:
            found.append((shape, odds))
    return tuple(found)
