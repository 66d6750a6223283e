"""Which devices a request may use at all, whatever they have free: conditions, kind of sharing, health."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from scoring.fleet import NO_KIND, BoolArray, DeviceState, Fleet, ModeCode, NodeState
from scoring.request import PodRequest, SharingMode

_FEW_NODES = 8


@dataclass(frozen=True, slots=True)
class Eligible:
    """Masks of shape ``(width, nodes)``, each included in the one before.

    ``present`` is a device, ``matching`` meets the pod's conditions, ``sharing`` offers the kind of share asked,
    ``usable`` is healthy on a node with a fresh report.
    """

    present: BoolArray
    matching: BoolArray
    sharing: BoolArray
    usable: BoolArray


def eligible(request: PodRequest, fleet: Fleet) -> Eligible:
    """Return which devices the request may use."""
    present = fleet.kind >= 0
    matching = present & meets_conditions(request, fleet)
    sharing = matching & mode_matches(request)[fleet.mode]
    fresh = fleet.node_state == NodeState.FRESH
    usable = sharing & (fleet.device_state >= DeviceState.SUSPECT) & fresh
    return Eligible(present, matching, sharing, usable)


def meets_conditions(request: PodRequest, fleet: Fleet) -> BoolArray:
    """Return the devices that meet the request's conditions, whoever hands them out."""
    matching = _kind_matches(request, fleet)
    return matching & _uuid_matches(request, fleet) if request.conditions.names_devices else matching


def mode_matches(request: PodRequest) -> BoolArray:
    """Return for each ``ModeCode`` whether a device in that mode can give a kind of share that the request accepts.

    An exclusive share can be given on any device that is otherwise shared; what NVIDIA's plugin hands out is not ours.
    """
    matches = np.zeros(len(ModeCode), np.bool_)
    for mode in ModeCode:
        exclusive = SharingMode.EXCLUSIVE in request.sharing and mode in (ModeCode.TIME_SLICING, ModeCode.MPS)
        matches[mode] = mode is not ModeCode.PLUGIN and (mode.sharing in request.sharing or exclusive)
    return matches


def _kind_matches(request: PodRequest, fleet: Fleet) -> BoolArray:
    """Look conditions up by device kind: a fleet has few kinds. The last entry answers for absent devices (-1)."""
    by_kind = np.zeros(len(fleet.kinds) + 1, np.bool_)
    for number in _kinds_here(fleet):
        by_kind[number] = request.conditions.matches(fleet.kinds[number])
    return by_kind[fleet.kind]


def _kinds_here(fleet: Fleet) -> Iterable[int]:
    """Return the kinds to look at: those that are there where few nodes are, else all."""
    if len(fleet) > _FEW_NODES:
        return range(len(fleet.kinds))
    return set(fleet.kind.ravel().tolist()) - {NO_KIND}


def _uuid_matches(request: PodRequest, fleet: Fleet) -> BoolArray:
    """Mark devices that conditions on UUIDs let through; only nodes that hold a named device are walked."""
    conditions = request.conditions
    matches = np.full(fleet.kind.shape, conditions.uuid_include is None, np.bool_)
    named = conditions.uuid_exclude | (conditions.uuid_include or frozenset())
    for row, uuids in enumerate(fleet.uuids):
        if not named.isdisjoint(uuids):
            matches[: len(uuids), row] = [conditions.allows_uuid(uuid) for uuid in uuids]
    return matches
