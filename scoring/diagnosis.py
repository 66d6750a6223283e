"""Why a request fits where it fits, and why not elsewhere: in numbers, for a person to read.

Made on demand, never on the way of a decision, and bounded: counts for every node, details for a few. Every value is a
frozen dataclass of plain values, so it serialises as it is. Which pods would have to end for a request to fit is not
known here: who holds what is the caller's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from scoring.feasibility import REASONS
from scoring.fleet import DeviceState, Fleet, ModeCode
from scoring.ground import Ground, survey
from scoring.nearest import Change, Trial, nearest_changes
from scoring.outlook import Outlook
from scoring.phases import phases
from scoring.pipeline import verdict
from scoring.placement import Placements, place
from scoring.registry import Policy
from scoring.request import PodRequest
from scoring.status import Code, Reason

DETAILED = 5
"""Nodes that fit, and nodes that do not, that are looked at device by device."""


class Hindrance(StrEnum):
    """The first thing that keeps one device from taking one share of an ask."""

    CONDITIONS = "conditions-not-met"
    SHARING = "sharing-not-offered"
    TOO_SMALL = "device-too-small"
    OUT = "device-or-report-not-usable"
    MEMORY = "too-little-free-memory"
    COMPUTE = "too-little-free-compute"


@dataclass(frozen=True, slots=True)
class Asked:
    """What one container asks, as understood: MiB and thousandths of each device; None follows the other."""

    container: str
    kind: str
    count: int
    memory_mib: int | None
    compute_milli: int | None


@dataclass(frozen=True, slots=True)
class Understood:
    """What the pod asks, as understood; conditions as (annotation without prefix, normal text)."""

    containers: tuple[Asked, ...]
    conditions: tuple[tuple[str, str], ...]
    sharing: tuple[str, ...]
    topology: str
    preferences: tuple[tuple[str, float], ...]
    workload: str | None
    policy: str


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """How many nodes share an outcome; ``reason`` None is "fits"."""

    outcome: str
    reason: Reason | None
    sentence: str
    nodes: int


@dataclass(frozen=True, slots=True)
class Shortage:
    """One ask against one device: what it would book, what is missing for it, and the first hindrance."""

    container: str
    need_mib: int
    need_milli: int
    missing_mib: int
    missing_milli: int
    hindrance: Hindrance | None


@dataclass(frozen=True, slots=True)
class DeviceDetail:
    """One device. ``unmet`` are the annotations, without prefix, of conditions that it does not meet; ``load`` 0..1."""

    uuid: str
    product: str
    state: str
    mode: str
    capacity_mib: int
    capacity_milli: int
    free_mib: int
    free_milli: int
    foreign_mib: int
    sharers: int
    load: float | None
    unmet: tuple[str, ...]
    shortages: tuple[Shortage, ...]


@dataclass(frozen=True, slots=True)
class ScorePart:
    """What one scorer says of the devices chosen, 0..1, and its weight; the weighted values add up to the score."""

    scorer: str
    weight: float
    value: float


@dataclass(frozen=True, slots=True)
class NodeDetail:
    """One node: outcome, score with its parts and the devices chosen where the request fits, and each device."""

    node: str
    outcome: str
    reason: Reason | None
    sentence: str
    score: float
    parts: tuple[ScorePart, ...]
    chosen: tuple[tuple[str, tuple[str, ...]], ...]
    devices: tuple[DeviceDetail, ...]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a request fits or not.

    ``nodes``       the best nodes that fit, best first, then those that came closest
    ``changes``     single changes that would make it fit; looked for only where nothing fits
    ``if_emptied``  nodes that would take it without pods and foreign processes, all devices healthy
    """

    asked: Understood
    generation: int
    counts: tuple[ReasonCount, ...]
    nodes: tuple[NodeDetail, ...]
    changes: tuple[Change, ...]
    if_emptied: int


def diagnose(
    request: PodRequest, fleet: Fleet, policy: Policy, outlook: Outlook, rows: Sequence[int] | None = None
) -> Diagnosis:
    """Return the diagnosis of a request over some rows of a fleet, or all of them that hold a node.

    Raises ValueError for a request without devices. Tens of evaluations where nothing fits, two where something does.
    """
    looked_at = fleet.take(np.array(_named(fleet) if rows is None else rows, np.intp))
    trial, found = Trial(looked_at, policy, outlook), place(request, looked_at, policy, outlook)
    fits = bool((found.code == Code.FIT).any())
    return Diagnosis(
        asked=_understood(request, policy),
        generation=fleet.generation,
        counts=outcome_counts(found),
        nodes=tuple(explain_node(request, looked_at, row, policy, outlook) for row in worth_detail(looked_at, found)),
        changes=() if fits else nearest_changes(request, trial),
        if_emptied=Trial(looked_at.emptied(), policy, outlook).nodes(request),
    )


def explain_node(request: PodRequest, fleet: Fleet, row: int, policy: Policy, outlook: Outlook) -> NodeDetail:
    """Return why one node takes a request or not, device by device."""
    ground = survey(request, fleet.take(np.array([row])), policy, outlook)
    found = place(request, ground.fleet, policy, outlook)
    judged = verdict(found, 0)
    slots = [chosen[:, 0].tolist() for chosen in found.slots] if judged.fits else []
    uuids = ground.fleet.uuids[0]
    return NodeDetail(
        node=fleet.names[row],
        outcome=_outcome(judged.code),
        reason=judged.reason,
        sentence=judged.reason.sentence if judged.reason else "",
        score=float(found.score[0]),
        parts=_parts(ground, slots) if slots else (),
        chosen=tuple((ask.name, tuple(uuids[at] for at in of)) for ask, of in zip(ground.asks, slots, strict=False)),
        devices=tuple(_device(ground, slot) for slot in range(len(uuids))),
    )


def _named(fleet: Fleet) -> list[int]:
    return [row for row, name in enumerate(fleet.names) if name]


def _outcome(code: Code) -> str:
    return code.name.lower()


def _understood(request: PodRequest, policy: Policy) -> Understood:
    return Understood(
        containers=tuple(
            Asked(ask.name, ask.kind, ask.count, ask.memory_mib, ask.compute_milli) for ask in request.containers
        ),
        conditions=request.conditions.describe(),
        sharing=tuple(sorted(request.sharing)),
        topology=request.topology,
        preferences=request.preferences,
        workload=request.workload,
        policy=policy.name,
    )


def outcome_counts(found: Placements) -> tuple[ReasonCount, ...]:
    """Return how many nodes share each outcome, the most frequent first."""
    counted = Counter(zip(found.code.tolist(), found.reason.tolist(), strict=True))
    return tuple(_count(Code(code), number, nodes) for (code, number), nodes in counted.most_common())


def _count(code: Code, number: int, nodes: int) -> ReasonCount:
    reason = None if code is Code.FIT else REASONS[number]
    return ReasonCount(_outcome(code), reason, reason.sentence if reason else "", nodes)


def worth_detail(fleet: Fleet, found: Placements) -> list[int]:
    """Return the rows to look at closely: the best that fit, then refused ones that may yet fit, most free first."""
    free = (fleet.capacity_mib - fleet.booked_mib - fleet.foreign_mib).max(axis=0, initial=0)
    fits = [row for row in range(len(fleet)) if found.code[row] == Code.FIT]
    refused = [row for row in range(len(fleet)) if found.code[row] < Code.FIT]
    fits.sort(key=lambda row: (-found.score[row], fleet.order[row]))
    refused.sort(key=lambda row: (-int(found.code[row]), -free[row], fleet.order[row]))
    return fits[:DETAILED] + refused[:DETAILED]


def _device(ground: Ground, slot: int) -> DeviceDetail:
    of = ground.fleet
    load = float(of.load[slot, 0])
    return DeviceDetail(
        uuid=of.uuids[0][slot],
        product=of.kinds[of.kind[slot, 0]].product,
        state=DeviceState(int(of.device_state[slot, 0])).name.lower(),
        mode=ModeCode(int(of.mode[slot, 0])).name.lower().replace("_", "-"),
        capacity_mib=int(of.capacity_mib[slot, 0]),
        capacity_milli=int(of.capacity_milli[slot, 0]),
        free_mib=int(ground.free_mib[slot, 0]),
        free_milli=int(ground.free_milli[slot, 0]),
        foreign_mib=int(of.foreign_mib[slot, 0]),
        sharers=int(of.sharers[slot, 0]),
        load=None if math.isnan(load) else load,
        unmet=_unmet(ground, slot),
        shortages=tuple(_shortage(ground, at, slot) for at in range(len(ground.asks))),
    )


def _unmet(ground: Ground, slot: int) -> tuple[str, ...]:
    of, conditions = ground.fleet, ground.request.conditions
    unmet = conditions.failing(of.kinds[of.kind[slot, 0]])
    return unmet if conditions.allows_uuid(of.uuids[0][slot]) else (*unmet, "gpu-uuid")


def _shortage(ground: Ground, at: int, slot: int) -> Shortage:
    need = ground.needs[at]
    need_mib, need_milli = int(need.mib[slot, 0]), int(need.milli[slot, 0])
    missing_mib = max(need_mib - int(ground.free_mib[slot, 0]), 0)
    missing_milli = max(need_milli - int(ground.free_milli[slot, 0]), 0)
    hindrances = (
        (Hindrance.CONDITIONS, not ground.eligible.matching[slot, 0]),
        (Hindrance.SHARING, not ground.eligible.sharing[slot, 0]),
        (Hindrance.TOO_SMALL, not need.sized[slot, 0]),
        (Hindrance.OUT, not ground.eligible.usable[slot, 0]),
        (Hindrance.MEMORY, missing_mib > 0),
        (Hindrance.COMPUTE, missing_milli > 0),
    )
    first = next((hindrance for hindrance, is_there in hindrances if is_there), None)
    return Shortage(ground.asks[at].name, need_mib, need_milli, missing_mib, missing_milli, first)


def _parts(ground: Ground, slots: list[list[int]]) -> tuple[ScorePart, ...]:
    """Return each scorer's mean over the devices of the main phase, each ask on what the ones before it left."""
    totals, count = dict.fromkeys((name for name, _, _ in ground.policy.scorers()), 0.0), 0
    plan = phases(ground.asks)
    for phase in plan[:1] if plan[0].is_main else plan:
        free_mib, free_milli = ground.free_mib.copy(), ground.free_milli.copy()
        for at in phase.placed_now:
            view = ground.candidates(at, ground.fits(at, free_mib, free_milli), free_mib, free_milli)
            for name, scorer, _ in ground.policy.scorers():
                totals[name] += float(np.broadcast_to(scorer(view), free_mib.shape)[slots[at], 0].sum())
            free_mib[slots[at], 0] -= ground.needs[at].mib[slots[at], 0]
            free_milli[slots[at], 0] -= ground.needs[at].milli[slots[at], 0]
            count += ground.asks[at].count
    return tuple(ScorePart(name, weight, totals[name] / count) for name, _, weight in ground.policy.scorers())
