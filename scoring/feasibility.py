"""Whether a node can take a request's asks one by one, and if not, why: the ordered checks.

Two kinds of check, in this order:

- *structure*: what no eviction changes. Too few devices, conditions, kind of sharing, size of the devices. A failure
  is UNRESOLVABLE.
- *state*: what changes by itself or by eviction. Report fresh, devices usable, memory free, compute free. A failure is
  UNSCHEDULABLE, so that preemption may look at the node.

Within each kind the first check that leaves too few devices names the reason. Whether the asks fit *together* is found
by placing them (``placement``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scoring.eligibility import mode_matches
from scoring.fleet import BoolArray, ByteArray, Fleet, NodeState
from scoring.ground import Ground
from scoring.needs import takes_whole_device
from scoring.phases import phases
from scoring.request import ContainerAsk, PodRequest, SharingMode
from scoring.status import Code, Reason

REASONS: tuple[Reason, ...] = tuple(Reason)
"""Reasons by number, as a column of them holds it."""

NO_REASON = 255

_REASON_NUMBER = {reason: number for number, reason in enumerate(REASONS)}

Verdicts = tuple[ByteArray, ByteArray]
"""The code and the reason number of every node; FIT goes with NO_REASON."""


Steps = tuple[tuple[BoolArray, Code, Reason], ...]
"""Checks in order: where nodes pass, and the verdict of those that do not."""


def reason_number(reason: Reason) -> int:
    """Return the number that stands for a reason in a column."""
    return _REASON_NUMBER[reason]


def one_by_one(ground: Ground) -> Verdicts:
    """Return the worst verdict of any ask looked at on its own; among equals the first ask's reason.

    Topology is not looked at.
    """
    code, reason = worst_of([shortfall(ground, at) for at in range(len(ground.asks))])
    if len(ground.asks) > 1:
        too_few = _too_few_whole(ground) & (code > Code.UNRESOLVABLE)
        _refuse(too_few, Code.UNRESOLVABLE, Reason.TOO_FEW_DEVICES, (code, reason))
    return code, reason


def worst_of(verdicts: Sequence[Verdicts]) -> Verdicts:
    """Return each node's worst verdict of at least one; among equals the first."""
    code, reason = verdicts[0]
    for other_code, other_reason in verdicts[1:]:
        worse = other_code < code
        code, reason = np.where(worse, other_code, code), np.where(worse, other_reason, reason)
    return code, reason


def shortfall(ground: Ground, at: int) -> Verdicts:
    """Return the verdict of every node for one ask on its own."""
    masks, need, count = ground.eligible, ground.needs[at], ground.asks[at].count
    sized = masks.sharing & need.sized
    usable = masks.usable & sized
    has_memory = usable & (need.mib <= ground.free_mib)
    has_both = has_memory & (need.milli <= ground.free_milli)
    memory_reason, compute_reason = shortage_reasons(ground.request, ground.asks[at])
    steps: Steps = (
        (_enough(masks.present, 1), Code.UNRESOLVABLE, Reason.NO_DEVICES),
        (_enough(masks.present, count), Code.UNRESOLVABLE, Reason.TOO_FEW_DEVICES),
        (_enough(masks.matching, count), Code.UNRESOLVABLE, Reason.NO_MATCHING_DEVICE),
        (_enough(masks.sharing, count), Code.UNRESOLVABLE, Reason.NO_SHARING_MODE),
        (_enough(sized, count), Code.UNRESOLVABLE, Reason.DEVICE_TOO_SMALL),
        (_enough(usable, count), Code.UNSCHEDULABLE, Reason.NO_HEALTHY_DEVICE),
        (_enough(has_memory, count), Code.UNSCHEDULABLE, memory_reason),
        (_enough(has_both, count), Code.UNSCHEDULABLE, compute_reason),
    )
    return judged(ground.fleet, steps)


def judged(fleet: Fleet, steps: Steps) -> Verdicts:
    """Return the verdict of every node: the first step that it fails speaks, unless its state forbids to say so."""
    code = np.full(len(fleet), Code.FIT, np.uint8)
    reason = np.full(len(fleet), NO_REASON, np.uint8)
    for passed, failed_code, failed_reason in reversed(steps):
        _refuse(~passed, failed_code, failed_reason, (code, reason))
    _judge_nodes(fleet, (code, reason))
    return code, reason


def shortage_reasons(request: PodRequest, ask: ContainerAsk) -> tuple[Reason, Reason]:
    """Return the reasons for too little memory and compute: no untouched device, where only whole ones will do."""
    if ask.is_whole or request.sharing == {SharingMode.EXCLUSIVE}:
        return Reason.NO_FREE_DEVICE, Reason.NO_FREE_DEVICE
    return Reason.INSUFFICIENT_MEMORY, Reason.INSUFFICIENT_COMPUTE


def _too_few_whole(ground: Ground) -> BoolArray:
    """Return the nodes that have fewer eligible devices than the pod's containers take whole at one time."""
    modes = mode_matches(ground.request)
    whole = [ask.count if takes_whole_device(ground.request, ask)[modes].all() else 0 for ask in ground.asks]
    most = max(sum(whole[at] for at in (*phase.beside, *phase.placed_now)) for phase in phases(ground.asks))
    return ~_enough(ground.eligible.sharing, most)


def _judge_nodes(fleet: Fleet, verdicts: Verdicts) -> None:
    """Let the state of the node speak where structure does not forbid the placement, or nothing is known of it."""
    state = fleet.node_state
    possible = verdicts[0] > Code.UNRESOLVABLE
    for node_state, node_reason in (
        (NodeState.STALE, Reason.NO_REPORT),
        (NodeState.CONFLICTED, Reason.NODE_CONFLICTED),
    ):
        _refuse(possible & (state == node_state), Code.UNSCHEDULABLE, node_reason, verdicts)
    _refuse(state == NodeState.UNREPORTED, Code.UNSCHEDULABLE, Reason.NO_REPORT, verdicts)
    _refuse(state == NodeState.EMPTY, Code.UNSCHEDULABLE, Reason.UNKNOWN_NODE, verdicts)


def _refuse(where: BoolArray, failed: Code, because: Reason, verdicts: Verdicts) -> None:
    code, reason = verdicts
    code[where] = failed
    reason[where] = reason_number(because)


def _enough(mask: BoolArray, count: int) -> BoolArray:
    if count == 1:
        return np.asarray(mask.any(axis=0))
    return np.asarray(mask.sum(axis=0, dtype=np.int16) >= count)
