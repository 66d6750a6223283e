"""Whether a node can take a request, and if not, why: the ordered checks.

Two kinds of check, in this order:

- *structure*: what no eviction changes. Too few devices, conditions, kind of sharing, size of the devices. A failure
  is UNRESOLVABLE.
- *state*: what changes by itself or by eviction. Report fresh, devices usable, memory free, compute free. A failure is
  UNSCHEDULABLE, so that preemption may look at the node.

Within each kind the first check that leaves too few devices names the reason.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scoring.candidates import large_enough, needs
from scoring.fleet import BoolArray, ByteArray, DeviceState, Fleet, IntArray, ModeCode, NodeState
from scoring.request import ContainerAsk, PodRequest, SharingMode
from scoring.status import Code, Reason

REASONS: tuple[Reason, ...] = tuple(Reason)
"""Reasons by number, as a column of them holds it."""

NO_REASON = 255

_REASON_NUMBER = {reason: number for number, reason in enumerate(REASONS)}


def reason_number(reason: Reason) -> int:
    """Return the number that stands for a reason in a column."""
    return _REASON_NUMBER[reason]


@dataclass(frozen=True, slots=True)
class Eligible:
    """Which devices a request may use at all, as masks of shape ``(width, nodes)``, each included in the one before.

    ``present`` is a device, ``matching`` meets the pod's conditions, ``sharing`` offers the kind of share asked,
    ``usable`` is healthy on a node with a fresh report.
    """

    present: BoolArray
    matching: BoolArray
    sharing: BoolArray
    usable: BoolArray


def eligible(request: PodRequest, fleet: Fleet) -> Eligible:
    """Return which devices the request may use, whatever they have free."""
    present = fleet.kind >= 0
    matching = present & _kind_matches(request, fleet)
    if request.conditions.names_devices:
        matching &= _uuid_matches(request, fleet)
    sharing = matching & _mode_matches(request)[fleet.mode]
    fresh = fleet.node_state == NodeState.FRESH
    usable = sharing & (fleet.device_state >= DeviceState.SUSPECT) & fresh
    return Eligible(present, matching, sharing, usable)


def shortfall(
    request: PodRequest, ask: ContainerAsk, fleet: Fleet, masks: Eligible, free: tuple[IntArray, IntArray]
) -> tuple[ByteArray, ByteArray]:
    """Return the code and the reason number of every node for one ask on its own; FIT with NO_REASON where it fits.

    ``free`` is the free MiB and the free thousandths of every device. Topology is not looked at.
    """
    need_mib, need_milli = needs(request, ask, fleet)
    sized = masks.sharing & large_enough(ask, fleet) & (need_mib > 0)
    usable = masks.usable & sized
    has_memory = usable & (need_mib <= free[0])
    has_both = has_memory & (need_milli <= free[1])
    whole = ask.is_whole or request.is_exclusive
    memory_reason = Reason.NO_FREE_DEVICE if whole else Reason.INSUFFICIENT_MEMORY
    compute_reason = Reason.NO_FREE_DEVICE if whole else Reason.INSUFFICIENT_COMPUTE
    steps: tuple[tuple[npt.NDArray[np.bool_], Code, Reason], ...] = (
        (_enough(masks.present, 1), Code.UNRESOLVABLE, Reason.NO_DEVICES),
        (_enough(masks.present, ask.count), Code.UNRESOLVABLE, Reason.TOO_FEW_DEVICES),
        (_enough(masks.matching, ask.count), Code.UNRESOLVABLE, Reason.NO_MATCHING_DEVICE),
        (_enough(masks.sharing, ask.count), Code.UNRESOLVABLE, Reason.NO_SHARING_MODE),
        (_enough(sized, ask.count), Code.UNRESOLVABLE, Reason.DEVICE_TOO_SMALL),
        (_enough(usable, ask.count), Code.UNSCHEDULABLE, Reason.NO_HEALTHY_DEVICE),
        (_enough(has_memory, ask.count), Code.UNSCHEDULABLE, memory_reason),
        (_enough(has_both, ask.count), Code.UNSCHEDULABLE, compute_reason),
    )
    code = np.full(len(fleet), Code.FIT, np.uint8)
    reason = np.full(len(fleet), NO_REASON, np.uint8)
    for passed, failed_code, failed_reason in reversed(steps):
        code[~passed] = failed_code
        reason[~passed] = reason_number(failed_reason)
    _judge_nodes(fleet, code, reason)
    return code, reason


def _judge_nodes(fleet: Fleet, code: ByteArray, reason: ByteArray) -> None:
    """Let the state of the node speak where structure does not forbid the placement, or nothing is known of it."""
    state = fleet.node_state
    possible = code > Code.UNRESOLVABLE
    for node_state, node_reason in ((NodeState.STALE, Reason.NO_REPORT), (NodeState.CONFLICTED, Reason.NODE_CONFLICTED)):
        _refuse(possible & (state == node_state), Code.UNSCHEDULABLE, node_reason, code, reason)
    _refuse(state == NodeState.UNREPORTED, Code.UNSCHEDULABLE, Reason.NO_REPORT, code, reason)
    _refuse(state == NodeState.EMPTY, Code.UNSCHEDULABLE, Reason.UNKNOWN_NODE, code, reason)


def _refuse(where: BoolArray, failed: Code, because: Reason, code: ByteArray, reason: ByteArray) -> None:
    code[where] = failed
    reason[where] = reason_number(because)


def _enough(mask: BoolArray, count: int) -> BoolArray:
    if count == 1:
        return mask.any(axis=0)
    return mask.sum(axis=0, dtype=np.int16) >= count


def _kind_matches(request: PodRequest, fleet: Fleet) -> BoolArray:
    """Look conditions up by device kind: a fleet has few kinds. The last entry answers for absent devices (-1)."""
    by_kind = np.zeros(len(fleet.kinds) + 1, np.bool_)
    by_kind[:-1] = [request.conditions.matches(kind) for kind in fleet.kinds]
    return by_kind[fleet.kind]


def _uuid_matches(request: PodRequest, fleet: Fleet) -> BoolArray:
    """Mark devices that conditions on UUIDs let through; only nodes that hold a named device are walked."""
    conditions = request.conditions
    matches = np.full(fleet.kind.shape, conditions.uuid_include is None, np.bool_)
    named = conditions.uuid_exclude | (conditions.uuid_include or frozenset())
    for row, uuids in enumerate(fleet.uuids):
        if not named.isdisjoint(uuids):
            matches[: len(uuids), row] = [conditions.allows_uuid(uuid) for uuid in uuids]
    return matches


def _mode_matches(request: PodRequest) -> BoolArray:
    matches = np.zeros(len(ModeCode), np.bool_)
    for mode in ModeCode:
        exclusive = SharingMode.EXCLUSIVE in request.sharing and mode in (ModeCode.TIME_SLICING, ModeCode.MPS)
        matches[mode] = mode is not ModeCode.PLUGIN and (mode.sharing in request.sharing or exclusive)
    return matches
