"""Whether an eviction helps, and whom to evict where the scheduler names nobody.

An eviction is imagined: the shares of its victims are taken off a copy of the node, and the same checks as in filter
look at it. A node that would still be refused is not worth anyone's pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from scoring.fleet import Fleet
from scoring.outlook import Outlook
from scoring.pipeline import evaluate
from scoring.registry import Policy
from scoring.request import PodRequest
from scoring.status import Code

MAX_CANDIDATES = 64
"""Pods of one node that are looked at as victims: those of the lowest priorities."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pod that could be evicted: what it books by (slot, MiB, thousandths), one entry a device."""

    uid: str
    priority: int
    booked: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Preemptor:
    """The pod that looks for room, and how it is judged."""

    request: PodRequest
    priority: int
    policy: Policy
    outlook: Outlook


def keep_node(preemptor: Preemptor, fleet: Fleet, row: int, victims: Iterable[Candidate]) -> bool:
    """Return whether our own filter would pass the node once these pods are gone."""
    shares: dict[tuple[int, int], tuple[int, int, int]] = {}
    for victim in victims:
        for slot, mib, milli in victim.booked:
            before = shares.get((row, slot), (0, 0, 0))
            shares[row, slot] = before[0] - mib, before[1] - milli, before[2] - 1
    node = fleet.part(np.array([row]), shares)
    return bool(evaluate(preemptor.request, node, preemptor.policy, preemptor.outlook).code[0] == Code.FIT)


def choose_victims(
    preemptor: Preemptor, fleet: Fleet, row: int, candidates: Sequence[Candidate]
) -> tuple[Candidate, ...] | None:
    """Return the cheapest set of lower-priority pods found whose end makes room; None if no eviction helps.

    Cheapest is: the lowest highest priority, then the fewest pods, then the least memory taken away. Looked at are the
    pods of each device by itself and all together, the lowest priorities first; none that could be spared is taken.
    An empty tuple says that there is room already. At most about 2 * 64 evaluations of the node for each device.
    """
    if keep_node(preemptor, fleet, row, ()):
        return ()
    lower = sorted((entry for entry in candidates if entry.priority < preemptor.priority and entry.booked), key=_rank)
    lower = lower[:MAX_CANDIDATES]
    slots = sorted({slot for entry in lower for slot, _, _ in entry.booked})
    pools = [[entry for entry in lower if any(at == slot for at, _, _ in entry.booked)] for slot in slots]
    found = (_smallest(preemptor, fleet, row, pool) for pool in (*pools, lower))
    return min((victims for victims in found if victims), key=_cost, default=None)


def _smallest(preemptor: Preemptor, fleet: Fleet, row: int, pool: Sequence[Candidate]) -> tuple[Candidate, ...] | None:
    """Take pods in order until there is room, then spare whoever can be spared, the most important first."""
    for count in range(1, len(pool) + 1):
        if keep_node(preemptor, fleet, row, pool[:count]):
            break
    else:
        return None
    victims = list(pool[:count])
    for spared in sorted(victims[:-1], key=_rank, reverse=True):
        rest = [entry for entry in victims if entry is not spared]
        if keep_node(preemptor, fleet, row, rest):
            victims = rest
    return tuple(victims)


def _rank(candidate: Candidate) -> tuple[int, int, str]:
    return candidate.priority, -sum(mib for _, mib, _ in candidate.booked), candidate.uid


def _cost(victims: Sequence[Candidate]) -> tuple[int, int, int, tuple[str, ...]]:
    taken = sum(mib for entry in victims for _, mib, _ in entry.booked)
    return max(entry.priority for entry in victims), len(victims), taken, tuple(sorted(entry.uid for entry in victims))
