"""What a scorer looks at: one ask, and every device that could take it.

All arrays are in the fleet's shape, ``(width, nodes)``; entries of devices where the ask does not fit hold numbers that
mean nothing and are masked afterwards. A scorer returns values in [0, 1], shape ``(width, nodes)`` or ``(nodes,)``;
higher is better; it must not look at which nodes are in the fleet beside the one it scores, so that one node and five
thousand get the same value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from scoring.fleet import Fleet, IntArray, ModeCode
from scoring.outlook import Outlook
from scoring.request import WHOLE_MILLI, ContainerAsk, PodRequest

Values: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Candidates:
    """One ask against every device.

    ``need_mib``, ``need_milli``   what the device would book
    ``free_mib``, ``free_milli``   what it has left now: booked, foreign and what this pod took before are off
    ``rest_milli``, ``left_milli`` usable thousandths of the device before and after: the scarcer of its two dimensions
    """

    request: PodRequest
    ask: ContainerAsk
    fleet: Fleet
    outlook: Outlook
    need_mib: IntArray
    need_milli: IntArray
    free_mib: IntArray
    free_milli: IntArray
    rest_milli: IntArray
    left_milli: IntArray


def candidates(
    request: PodRequest,
    ask: ContainerAsk,
    fleet: Fleet,
    outlook: Outlook,
    need: tuple[IntArray, IntArray],
    free: tuple[IntArray, IntArray],
) -> Candidates:
    """Return the view of one ask for the scorers; ``need`` and ``free`` are MiB and thousandths of every device."""
    rest = remainder_milli(fleet, free[0], free[1])
    left = remainder_milli(fleet, free[0] - need[0], free[1] - need[1])
    return Candidates(request, ask, fleet, outlook, *need, *free, rest, left)


def remainder_milli(fleet: Fleet, free_mib: IntArray, free_milli: IntArray) -> IntArray:
    """Return thousandths of each device that are usable: the scarcer of memory and compute, 0..1000."""
    of_memory = _times_over(free_mib, 1000, fleet.capacity_mib)
    of_compute = _times_over(free_milli, 1000, fleet.capacity_milli)
    return np.clip(np.minimum(of_memory, of_compute), 0, 1000)


def _times_over(amount: IntArray, factor: int, whole: IntArray) -> IntArray:
    """Return floor(amount * factor / whole), 0 where ``whole`` is 0.

    Exact: products stay below 2**53, and a quotient that is no integer differs from one by more than rounding can.
    """
    quotient = np.floor(amount.astype(np.float64) * factor / np.maximum(whole, 1))
    return np.where(whole > 0, np.minimum(quotient, _INT32_MAX), 0).astype(np.int32)


def needs(request: PodRequest, ask: ContainerAsk, fleet: Fleet) -> tuple[IntArray, IntArray]:
    """Return the MiB and thousandths that one device of the ask would book, for every device.

    A dimension left out follows the other one on that device, rounded down (design section 2). Whole devices, MIG
    instances and exclusive shares book all there is.
    """
    memory = _memory_need(ask, fleet)
    compute = _compute_need(ask, fleet)
    takes_all = fleet.mode == ModeCode.MIG
    if ask.is_whole or request.is_exclusive:
        takes_all = np.ones_like(takes_all)
    if takes_all.any():
        memory = np.where(takes_all, fleet.capacity_mib, memory)
        compute = np.where(takes_all, fleet.capacity_milli, compute)
    return memory, compute


def large_enough(ask: ContainerAsk, fleet: Fleet) -> npt.NDArray[np.bool_]:
    """Return where an empty device would hold one share of the ask."""
    enough = fleet.capacity_mib > 0
    if ask.memory_mib is not None:
        enough &= fleet.capacity_mib >= ask.memory_mib
    if ask.compute_milli is not None and not ask.is_whole:
        enough &= fleet.capacity_milli >= ask.compute_milli
    return enough


def _memory_need(ask: ContainerAsk, fleet: Fleet) -> IntArray:
    if ask.memory_mib is not None:
        return np.full_like(fleet.capacity_mib, min(ask.memory_mib, _INT32_MAX))
    assert ask.compute_milli is not None
    of_all = np.full_like(fleet.capacity_milli, WHOLE_MILLI)
    return _times_over(fleet.capacity_mib, ask.compute_milli, of_all)


def _compute_need(ask: ContainerAsk, fleet: Fleet) -> IntArray:
    if ask.compute_milli is not None:
        return np.full_like(fleet.capacity_milli, ask.compute_milli)
    assert ask.memory_mib is not None
    return _times_over(fleet.capacity_milli, min(ask.memory_mib, _INT32_MAX), fleet.capacity_mib)


_INT32_MAX = np.iinfo(np.int32).max
