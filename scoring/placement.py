"""Which devices of a node a request takes: one function, for one node or for five thousand.

Each ask picks its best devices by the policy, the largest ask first, with what earlier asks took off the room that is
left. For a request with a single ask that is exact. With several it may fail where an answer exists; those nodes, and
only those, are searched exactly (``exact``), within a bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scoring.candidates import Candidates, candidates, needs
from scoring.exact import search
from scoring.feasibility import Eligible, eligible, reason_number, shortfall
from scoring.fleet import BoolArray, ByteArray, Fleet, FloatArray, IntArray
from scoring.groups import each_group
from scoring.outlook import Outlook
from scoring.phases import Phase, phases
from scoring.registry import Policy
from scoring.request import ContainerAsk, PodRequest, Topology
from scoring.status import Code, Reason

Slots = npt.NDArray[np.int16]
NO_SLOT = -1
_REUSE_BONUS = np.float32(10)


@dataclass(frozen=True, slots=True)
class Placements:
    """The best placement on every node of a fleet.

    ``code``, ``reason``  shape (nodes,): the verdict; reason numbers as in ``feasibility.REASONS``
    ``score``             shape (nodes,): 0..1, 0 where nothing fits
    ``slots``             one array an ask, in the request's order, shape (count, nodes); NO_SLOT where nothing fits
    """

    code: ByteArray
    reason: ByteArray
    score: FloatArray
    slots: tuple[Slots, ...]


@dataclass(frozen=True, slots=True)
class _Room:
    """Free MiB and thousandths of every device, and what the pod's earlier phases hold of them."""

    free_mib: IntArray
    free_milli: IntArray
    held_mib: IntArray
    held_milli: IntArray


def place(request: PodRequest, fleet: Fleet, policy: Policy, outlook: Outlook) -> Placements:
    """Return the best placement of a request on every node.

    Linear in devices times the devices asked; exact searches add a bounded part for nodes where a request of several
    containers is tight.
    """
    asks, masks = request.containers, eligible(request, fleet)
    free = _free(fleet)
    code, reason = _alone(request, fleet, masks, free)
    slots, score, placed = _greedy(request, fleet, policy, outlook, masks, free)
    doubtful = np.flatnonzero((code == Code.FIT) & ~placed)
    if len(doubtful):
        _settle(request, fleet, masks, free, doubtful, slots, placed)
        score = np.where(placed, _score_of(request, fleet, policy, outlook, free, slots, score, doubtful), score)
        _refuse_rest(request, fleet, policy, outlook, code, reason, placed)
    fits = code == Code.FIT
    for chosen in slots:
        chosen[:, ~fits] = NO_SLOT
    assert len(slots) == len(asks)
    return Placements(code, reason, np.where(fits, score, np.float32(0)), slots)


def _free(fleet: Fleet) -> tuple[IntArray, IntArray]:
    return fleet.capacity_mib - fleet.booked_mib - fleet.foreign_mib, fleet.capacity_milli - fleet.booked_milli


def _alone(
    request: PodRequest, fleet: Fleet, masks: Eligible, free: tuple[IntArray, IntArray]
) -> tuple[ByteArray, ByteArray]:
    """Return the worst verdict of any ask looked at on its own; among equals the first ask's reason."""
    code, reason = shortfall(request, request.containers[0], fleet, masks, free)
    for ask in request.containers[1:]:
        ask_code, ask_reason = shortfall(request, ask, fleet, masks, free)
        worse = ask_code < code
        code, reason = np.where(worse, ask_code, code), np.where(worse, ask_reason, reason)
    return code, reason


def _greedy(
    request: PodRequest,
    fleet: Fleet,
    policy: Policy,
    outlook: Outlook,
    masks: Eligible,
    free: tuple[IntArray, IntArray],
) -> tuple[tuple[Slots, ...], FloatArray, BoolArray]:
    """Place ask by ask on all nodes at once: slots, mean score of the main phase, and where everything was placed."""
    asks = request.containers
    chosen: dict[int, Slots] = {}
    placed = np.ones(len(fleet), np.bool_)
    score, weight = np.zeros(len(fleet), np.float32), 0
    held = np.zeros_like(free[0]), np.zeros_like(free[1])
    plan = phases(asks)
    for phase in plan:
        room = _room(request, fleet, phase, chosen, free, held)
        for at in phase.placed_now:
            slots, ask_score, fits = _choose(request, asks[at], fleet, policy, outlook, masks, room)
            chosen[at], placed = slots, placed & fits
            _take(request, asks[at], fleet, slots, room)
            if phase.is_main or not plan[0].is_main:
                score, weight = score + ask_score * asks[at].count, weight + asks[at].count
        held = np.maximum(held[0], free[0] - room.free_mib), np.maximum(held[1], free[1] - room.free_milli)
    return tuple(chosen[at] for at in range(len(asks))), score / max(weight, 1), placed


def _room(
    request: PodRequest,
    fleet: Fleet,
    phase: Phase,
    chosen: dict[int, Slots],
    free: tuple[IntArray, IntArray],
    held: tuple[IntArray, IntArray],
) -> _Room:
    room = _Room(free[0].copy(), free[1].copy(), held[0], held[1])
    for at in phase.beside:
        _take(request, request.containers[at], fleet, chosen[at], room)
    return room


def _choose(
    request: PodRequest,
    ask: ContainerAsk,
    fleet: Fleet,
    policy: Policy,
    outlook: Outlook,
    masks: Eligible,
    room: _Room,
) -> tuple[Slots, FloatArray, BoolArray]:
    """Pick the ask's devices on every node: slots (count, nodes), their mean score, and where there were enough."""
    need_mib, need_milli = needs(request, ask, fleet)
    fits = masks.usable & (need_mib <= room.free_mib) & (need_milli <= room.free_milli) & (need_mib > 0)
    free = room.free_mib, room.free_milli
    value = device_values(policy, candidates(request, ask, fleet, outlook, (need_mib, need_milli), free))
    rank = value + _REUSE_BONUS * _reuses(fleet, room, need_mib, need_milli) if room.held_mib.any() else value
    fits = _close_together(request.topology, ask.count, fleet, fits, rank)
    rank = np.where(fits, rank, -np.inf)
    slots = _top(rank, ask.count)
    enough = fits.sum(axis=0, dtype=np.int16) >= ask.count
    score = np.take_along_axis(value, slots, axis=0).mean(axis=0)
    return np.where(enough, slots, NO_SLOT).astype(np.int16), np.where(enough, score, np.float32(0)), enough


def device_values(policy: Policy, view: Candidates) -> FloatArray:
    """Return the policy's weighted mean of its scorers for every device, 0..1, shape ``(width, nodes)``."""
    value = np.zeros(view.need_mib.shape, np.float32)
    for _, scorer, weight in policy.scorers():
        value += np.float32(weight) * scorer(view)
    return value


def _reuses(fleet: Fleet, room: _Room, need_mib: IntArray, need_milli: IntArray) -> BoolArray:
    """Return the devices on which the pod's other phases hold so much that this ask books nothing more."""
    in_use_mib = fleet.capacity_mib - fleet.booked_mib - fleet.foreign_mib - room.free_mib
    in_use_milli = fleet.capacity_milli - fleet.booked_milli - room.free_milli
    return (in_use_mib + need_mib <= room.held_mib) & (in_use_milli + need_milli <= room.held_milli)


def _close_together(topology: Topology, count: int, fleet: Fleet, fits: BoolArray, rank: FloatArray) -> BoolArray:
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
        worth = np.where(enough, np.take_along_axis(masked, _top(masked, count), axis=0).sum(axis=0), -np.inf)
        better = worth > best
        members_of_best = np.where(better, members, members_of_best)
        best = np.maximum(best, worth)
    return members_of_best


def _top(rank: FloatArray, count: int) -> npt.NDArray[np.intp]:
    """Return the slots of the ``count`` highest ranks of each node, best first; among equals the lower slot."""
    if count == 1:
        return rank.argmax(axis=0)[np.newaxis]
    count_or_width = min(count, rank.shape[0])
    top = np.argsort(-rank, axis=0, kind="stable")[:count_or_width]
    return np.pad(top, ((0, count - count_or_width), (0, 0)))


def _take(request: PodRequest, ask: ContainerAsk, fleet: Fleet, slots: Slots, room: _Room) -> None:
    need_mib, need_milli = needs(request, ask, fleet)
    for chosen in slots:
        rows = np.flatnonzero(chosen >= 0)
        at = chosen[rows], rows
        room.free_mib[at] -= need_mib[at]
        room.free_milli[at] -= need_milli[at]


def _settle(
    request: PodRequest,
    fleet: Fleet,
    masks: Eligible,
    free: tuple[IntArray, IntArray],
    doubtful: npt.NDArray[np.intp],
    slots: tuple[Slots, ...],
    placed: BoolArray,
) -> None:
    """Search exactly where asks fit one by one and the greedy pass found no way; nodes in the same state once."""
    if len(request.containers) == 1:
        return
    found: dict[bytes, tuple[tuple[int, ...], ...] | None] = {}
    need = [needs(request, ask, fleet) for ask in request.containers]
    groups = {Topology.NUMA: fleet.numa, Topology.NVLINK: fleet.link, Topology.ANY: None}[request.topology]
    for row in doubtful:
        columns = [masks.usable[:, row], free[0][:, row], free[1][:, row]]
        columns += [amount[:, row] for pair in need for amount in pair]
        columns += [] if groups is None else [groups[:, row]]
        state = b"".join(column.tobytes() for column in columns)
        if state not in found:
            group = None if groups is None else groups[:, row].tolist()
            found[state] = search(request.containers, *(column.tolist() for column in columns[:3]),
                                  [(a[:, row].tolist(), b[:, row].tolist()) for a, b in need], group)  # fmt: skip
        answer = found[state]
        if answer is not None:
            placed[row] = True
            for chosen, answer_slots in zip(slots, answer, strict=True):
                chosen[:, row] = answer_slots


def _score_of(
    request: PodRequest,
    fleet: Fleet,
    policy: Policy,
    outlook: Outlook,
    free: tuple[IntArray, IntArray],
    slots: tuple[Slots, ...],
    score: FloatArray,
    rows: npt.NDArray[np.intp],
) -> FloatArray:
    """Return the scores with those of exactly searched nodes: the mean value of the devices chosen there."""
    total, weight = np.zeros(len(fleet), np.float32), 0
    for ask, chosen in zip(request.containers, slots, strict=True):
        view = candidates(request, ask, fleet, outlook, needs(request, ask, fleet), free)
        value = device_values(policy, view)
        total += np.take_along_axis(value, np.maximum(chosen, 0).astype(np.intp), axis=0).sum(axis=0)
        weight += ask.count
    mixed = score.copy()
    mixed[rows] = total[rows] / weight
    return mixed


def _refuse_rest(
    request: PodRequest,
    fleet: Fleet,
    policy: Policy,
    outlook: Outlook,
    code: ByteArray,
    reason: ByteArray,
    placed: BoolArray,
) -> None:
    """Refuse nodes where each ask fits alone and all together do not; for good, if they would not when it is empty."""
    refused = (code == Code.FIT) & ~placed
    together = len(request.containers) > 1
    because = Reason.CONTAINERS_DO_NOT_FIT if together else Reason.TOPOLOGY
    code[refused], reason[refused] = Code.UNSCHEDULABLE, reason_number(because)
    busy = (fleet.booked_mib + fleet.foreign_mib + fleet.booked_milli).any(axis=0) | (fleet.device_state == 1).any(axis=0)
    code[refused & ~busy] = Code.UNRESOLVABLE
    rows = np.flatnonzero(refused & busy)
    if len(rows):
        emptied = fleet.take(rows).emptied()
        code[rows] = np.where(place(request, emptied, policy, outlook).code == Code.FIT, code[rows], Code.UNRESOLVABLE)
