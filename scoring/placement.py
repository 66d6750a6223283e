"""Which devices of a node a request takes: one function, for one node or for five thousand.

First every ask on its own, which names the reasons (``feasibility``); then all asks together, greedily on all nodes at
once (``greedy``); then, for requests of several containers, the nodes on which that found no way are searched exactly
(``exact``), within a bound that all nodes share: beyond it a node counts as not fitting.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scoring.candidates import over_devices
from scoring.exact import STEPS, Node, search
from scoring.feasibility import one_by_one, reason_number
from scoring.fleet import BoolArray, ByteArray, DeviceState, Fleet, FloatArray
from scoring.greedy import NO_SLOT, Found, Slots, pick, place_greedily
from scoring.ground import Ground, survey
from scoring.outlook import Outlook
from scoring.registry import Policy
from scoring.request import PodRequest, Topology
from scoring.standing import can_stand, stand, values
from scoring.status import Code, Reason

STEPS_OF_ALL = 100_000
"""Steps of exact search for one request over all nodes, about a third of a second."""

FEWEST_STEPS = 20

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Placements:
    """The best placement on every node of a fleet.

    ``code``, ``reason``  shape (nodes,): the verdict; reason numbers as in ``feasibility.REASONS``
    ``score``             shape (nodes,): 0..1, 0 where nothing fits
    ``slots``             one array an ask, in the request's order, shape (count, nodes); NO_SLOT where nothing fits;
                          empty when no node fits
    """

    code: ByteArray
    reason: ByteArray
    score: FloatArray
    slots: tuple[Slots, ...]


def place(request: PodRequest, fleet: Fleet, policy: Policy, outlook: Outlook) -> Placements:
    """Return the best placement of a request on every node.

    Linear in devices times the devices asked; exact searches add a bounded part for nodes where a request of several
    containers is tight. Raises ValueError for a request without devices.
    """
    if policy.helper is not None and can_stand(request):
        return _place_one(request, fleet, policy, outlook)
    ground = survey(request, fleet, policy, outlook)
    code, reason = one_by_one(ground)
    if not (code == Code.FIT).any():
        return Placements(code, reason, np.zeros(len(fleet), np.float32), ())
    found = place_greedily(ground)
    doubtful = np.flatnonzero((code == Code.FIT) & ~found.placed)
    if len(doubtful):
        found = _settle(ground, found, doubtful)
        _refuse_rest(ground, code, reason, found.placed)
    fits = code == Code.FIT
    slots = tuple(np.where(fits, chosen, np.int16(NO_SLOT)) for chosen in found.slots)
    return Placements(code, reason, np.where(fits, np.minimum(found.score, 1), np.float32(0)), slots)


def _place_one(request: PodRequest, fleet: Fleet, policy: Policy, outlook: Outlook) -> Placements:
    """Place a request whose evaluation has a lasting part: one ask that needs no more than devices that fit."""
    standing = stand(request, fleet, policy, outlook)
    fits = standing.code == Code.FIT
    if not fits.any():
        return Placements(standing.code, standing.reason, np.zeros(len(fleet), np.float32), ())
    value, count = values(standing, request, fleet, policy, outlook), request.containers[0].count
    slots, score, _ = pick(fleet, request.topology, count, standing.fits, value, value)
    chosen = np.where(fits, slots, np.int16(NO_SLOT))
    return Placements(standing.code, standing.reason, np.where(fits, np.minimum(score, 1), np.float32(0)), (chosen,))


def _settle(ground: Ground, found: Found, doubtful: Rows) -> Found:
    """Search exactly where asks fit one by one and the greedy pass found no way; nodes in the same state once."""
    if len(ground.asks) == 1:
        return found
    nodes = _nodes(ground, doubtful)
    distinct = dict.fromkeys(nodes)
    answers = {node: search(ground.asks, node, _steps_each(len(distinct))) for node in distinct}
    slots, placed, settled = tuple(chosen.copy() for chosen in found.slots), found.placed.copy(), []
    for row, node in zip(doubtful.tolist(), nodes, strict=True):
        answer = answers[node]
        if answer is not None:
            settled.append(row)
            for chosen, answer_slots in zip(slots, answer, strict=True):
                chosen[:, row] = answer_slots
    placed[settled] = True
    return Found(slots, _rescored(ground, found.score, slots, settled), placed)


def _steps_each(nodes: int) -> int:
    """Return how long each node may be searched, so that pods of many containers never hold everything up."""
    return max(min(STEPS, STEPS_OF_ALL // nodes), FEWEST_STEPS)


def _nodes(ground: Ground, rows: Rows) -> list[Node]:
    """Return nodes in plain numbers."""
    fleet, needs = ground.fleet, ground.needs
    groups = {Topology.NUMA: fleet.numa, Topology.NVLINK: fleet.link, Topology.ANY: np.zeros_like(fleet.numa)}

    def plain(column: npt.NDArray[np.generic]) -> list[tuple[int, ...]]:
        return [tuple(values) for values in column[:, rows].T.tolist()]

    free = zip(plain(ground.free_mib), plain(ground.free_milli), plain(groups[ground.request.topology]), strict=True)
    usable = zip(*(plain(ground.eligible.usable & need.sized) for need in needs), strict=True)
    need_mib = zip(*(plain(need.mib) for need in needs), strict=True)
    need_milli = zip(*(plain(need.milli) for need in needs), strict=True)
    return [Node(*a, b, c, d) for a, b, c, d in zip(free, usable, need_mib, need_milli, strict=True)]


def _rescored(ground: Ground, score: FloatArray, slots: tuple[Slots, ...], settled: list[int]) -> FloatArray:
    """Return the scores with those of exactly searched nodes: the mean value of the devices chosen there."""
    if not settled:
        return score
    total = np.zeros(len(ground.fleet), np.float32)
    for at, chosen in enumerate(slots):
        fits = ground.fits(at, ground.free_mib, ground.free_milli)
        value = ground.policy.value(ground.candidates(at, fits, ground.free_mib, ground.free_milli))
        total += over_devices(np.take_along_axis(value, np.maximum(chosen, 0).astype(np.intp), axis=0))
    mixed = score.copy()
    mixed[settled] = total[settled] / np.float32(sum(ask.count for ask in ground.asks))
    return mixed


def _refuse_rest(ground: Ground, code: ByteArray, reason: ByteArray, placed: BoolArray) -> None:
    """Refuse nodes where each ask fits alone and all together do not; for good, if they would not when it is empty."""
    refused = (code == Code.FIT) & ~placed
    because = Reason.CONTAINERS_DO_NOT_FIT if len(ground.asks) > 1 else Reason.TOPOLOGY
    code[refused], reason[refused] = Code.UNSCHEDULABLE, reason_number(because)
    busy = _is_busy(ground.fleet)
    code[refused & ~busy] = Code.UNRESOLVABLE
    rows = np.flatnonzero(refused & busy)
    if len(rows):
        emptied = ground.fleet.take(rows).emptied()
        would_be = place(ground.request, emptied, ground.policy, ground.outlook).code
        code[rows] = np.where(would_be == Code.FIT, Code.UNSCHEDULABLE, Code.UNRESOLVABLE)


def _is_busy(fleet: Fleet) -> BoolArray:
    """Return the nodes that ``Fleet.emptied`` would change for a node with a fresh report."""
    taken = (fleet.booked_mib + fleet.foreign_mib + fleet.booked_milli).any(axis=0)
    busy: BoolArray = taken | (fleet.device_state == DeviceState.OUT).any(axis=0)
    return busy
