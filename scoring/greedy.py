"""Placing ask by ask on all nodes at once: each ask takes its best devices, the largest ask first.

What earlier asks took is off the room that later ones find. For a request with a single ask that is exact; with several
it may find no way where there is one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scoring.candidates import Values, over_devices
from scoring.fleet import BoolArray, Fleet, FloatArray, IntArray
from scoring.ground import Ground
from scoring.groups import each_group
from scoring.needs import Need
from scoring.phases import Phase, phases
from scoring.request import Topology

Slots = npt.NDArray[np.int16]
NO_SLOT = -1

_REUSE_BONUS = np.float32(10)
"""Above every sum of scores: a device on which the pod books nothing more comes before all others."""


@dataclass(frozen=True, slots=True)
class Found:
    """The choice on every node.

    ``slots``   one array an ask, in the request's order, shape (count, nodes)
    ``score``   shape (nodes,), 0..1: the mean over the devices of the main phase
    ``placed``  shape (nodes,): where every ask found its devices; elsewhere the other two mean nothing
    """

    slots: tuple[Slots, ...]
    score: FloatArray
    placed: BoolArray


@dataclass(frozen=True, slots=True)
class _Room:
    """What one phase of the pod finds: free amounts, which it takes from, and what its other phases book anyhow."""

    free_mib: IntArray
    free_milli: IntArray
    booked_mib: IntArray
    booked_milli: IntArray

    def take(self, need: Need, slots: Slots) -> None:
        for chosen in slots:
            rows = np.flatnonzero(chosen >= 0)
            at = chosen[rows], rows
            self.free_mib[at] -= need.mib[at]
            self.free_milli[at] -= need.milli[at]


def place_greedily(ground: Ground) -> Found:
    """Return each node's choice, phase by phase. No ask asks more devices than the fleet has slots."""
    chosen: dict[int, Slots] = {}
    scores: dict[int, FloatArray] = {}
    placed = np.ones(len(ground.fleet), np.bool_)
    booked = np.zeros_like(ground.free_mib), np.zeros_like(ground.free_milli)
    plan = phases(ground.asks)
    for phase in plan:
        room = _room(ground, phase, chosen, booked)
        for at in phase.placed_now:
            chosen[at], scores[at], enough = _choose(ground, at, room)
            placed &= enough
            room.take(ground.needs[at], chosen[at])
        booked = _most(booked, ground, room)
    slots = tuple(chosen[at] for at in range(len(ground.asks)))
    counted = plan[0].placed_now if plan[0].is_main else tuple(scores)
    return Found(slots, _mean(ground, counted, scores), placed)


def _room(ground: Ground, phase: Phase, chosen: dict[int, Slots], booked: tuple[IntArray, IntArray]) -> _Room:
    room = _Room(ground.free_mib.copy(), ground.free_milli.copy(), *booked)
    for at in phase.beside:
        room.take(ground.needs[at], chosen[at])
    return room


def _most(booked: tuple[IntArray, IntArray], ground: Ground, room: _Room) -> tuple[IntArray, IntArray]:
    """Return what the pod books of each device after this phase: the most that any phase so far takes."""
    taken_mib, taken_milli = ground.free_mib - room.free_mib, ground.free_milli - room.free_milli
    return np.maximum(booked[0], taken_mib), np.maximum(booked[1], taken_milli)


def _mean(ground: Ground, counted: tuple[int, ...], scores: dict[int, FloatArray]) -> FloatArray:
    """Return the mean score over the devices of the asks that count."""
    total = np.zeros(len(ground.fleet), np.float32)
    for at in counted:
        total += scores[at] * np.float32(ground.asks[at].count)
    return total / np.float32(sum(ground.asks[at].count for at in counted))


def _choose(ground: Ground, at: int, room: _Room) -> tuple[Slots, FloatArray, BoolArray]:
    """Pick the ask's devices on every node: slots (count, nodes), their mean score, and where there were enough."""
    count = ground.asks[at].count
    fits = ground.fits(at, room.free_mib, room.free_milli)
    value = ground.policy.value(ground.candidates(at, fits, room.free_mib, room.free_milli))
    rank = value + _REUSE_BONUS * _reused(ground, at, room) if room.booked_mib.any() else value
    return pick(ground.fleet, ground.request.topology, count, fits, value, rank)


def pick(
    fleet: Fleet, topology: Topology, count: int, fits: BoolArray, value: Values, rank: Values
) -> tuple[Slots, FloatArray, BoolArray]:
    """Pick the ``count`` devices of the highest rank that fit, close together, on every node.

    Returns slots (count, nodes), the mean of their values, 0 where there were too few, and where there were enough.
    """
    fits = _close_together(fleet, topology, count, fits, rank)
    slots = _top(np.where(fits, rank, -np.inf), count)
    enough = fits.sum(axis=0, dtype=np.int16) >= count
    score = over_devices(np.take_along_axis(value, slots, axis=0)) / np.float32(count)
    return np.where(enough, slots, NO_SLOT).astype(np.int16), np.where(enough, score, np.float32(0)), enough


def _reused(ground: Ground, at: int, room: _Room) -> Values:
    """Return the part of the ask, 0..1, that the pod's other phases book of each device anyhow."""
    spare_mib = room.booked_mib - (ground.free_mib - room.free_mib)
    spare_milli = room.booked_milli - (ground.free_milli - room.free_milli)
    need = ground.needs[at]
    return np.minimum(_part(spare_mib, need.mib), _part(spare_milli, need.milli))


def _part(spare: IntArray, need: IntArray) -> Values:
    part = np.clip(spare / np.maximum(need, 1).astype(np.float32), 0, 1).astype(np.float32)
    return np.where(need > 0, part, np.float32(1))


def _close_together(fleet: Fleet, topology: Topology, count: int, fits: BoolArray, rank: FloatArray) -> BoolArray:
    """Narrow the devices of each node to its best group; without a demand only where some group can take the ask."""
    if count == 1:
        return fits
    if topology is Topology.NVLINK:
        return _best_group(fleet.link, count, fits, rank)
    if topology is Topology.NUMA:
        return _best_group(fleet.numa, count, fits, rank)
    for groups in (fleet.numa, fleet.link):
        close = _best_group(groups, count, fits, rank)
        fits = np.where(close.any(axis=0), close, fits)
    return fits


def _best_group(groups: npt.NDArray[np.int16], count: int, fits: BoolArray, rank: FloatArray) -> BoolArray:
    best = np.full(fits.shape[1], -np.inf, np.float32)
    members_of_best = np.zeros(fits.shape, np.bool_)
    for group in each_group(groups):
        members = group & fits
        enough = members.sum(axis=0, dtype=np.int16) >= count
        masked = np.where(members, rank, -np.inf)
        worth = over_devices(np.take_along_axis(masked, _top(masked, count), axis=0))
        better = enough & (worth > best)
        members_of_best = np.where(better, members, members_of_best)
        best = np.where(better, worth, best)
    return members_of_best


def _top(rank: FloatArray, count: int) -> npt.NDArray[np.intp]:
    """Return the slots of the ``count`` highest ranks of each node, best first; among equals the lower slot."""
    if count == 1:
        return np.asarray(rank.argmax(axis=0)[np.newaxis])
    order: npt.NDArray[np.intp] = np.argsort(-rank, axis=0, kind="stable")
    return order[:count]
