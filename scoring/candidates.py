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
from scoring.request import ContainerAsk, PodRequest

Values: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Candidates:
    """One ask against every device.

    ``need_mib``, ``need_milli``   what the device would book
    ``free_mib``, ``free_milli``   what it has left now: booked, foreign and what this pod took before are off
    """

    request: PodRequest
    ask: ContainerAsk
    fleet: Fleet
    outlook: Outlook
    need_mib: IntArray
    need_milli: IntArray
    free_mib: IntArray
    free_milli: IntArray

    def left_milli(self) -> IntArray:
        """Return thousandths of each device that stay usable after the placement: the scarcer of its two dimensions."""
        return remainder_milli(self.fleet, self.free_mib - self.need_mib, self.free_milli - self.need_milli)

    def remainder_milli(self) -> IntArray:
        """Return thousandths of each device that are usable before the placement."""
        return remainder_milli(self.fleet, self.free_mib, self.free_milli)


def remainder_milli(fleet: Fleet, free_mib: IntArray, free_milli: IntArray) -> IntArray:
    """Return thousandths of each device that are usable: the scarcer of memory and compute, never below 0."""
    of_memory = free_mib.astype(np.int64) * 1000 // np.maximum(fleet.capacity_mib, 1)
    of_compute = free_milli.astype(np.int64) * 1000 // np.maximum(fleet.capacity_milli, 1)
    return np.maximum(np.minimum(of_memory, of_compute), 0).astype(np.int32)


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
    follows = fleet.capacity_mib.astype(np.int64) * ask.compute_milli // 1000
    return follows.astype(np.int32)


def _compute_need(ask: ContainerAsk, fleet: Fleet) -> IntArray:
    if ask.compute_milli is not None:
        return np.full_like(fleet.capacity_milli, ask.compute_milli)
    assert ask.memory_mib is not None
    follows = fleet.capacity_milli.astype(np.int64) * ask.memory_mib // np.maximum(fleet.capacity_mib, 1)
    return np.minimum(follows, _INT32_MAX).astype(np.int32)


_INT32_MAX = np.iinfo(np.int32).max
