"""What one device of an ask would book: the ask's amounts, and what follows from them on each device.

A dimension left out follows the other one on that device, rounded down (design section 2). Whole devices, MIG instances
and shares under ``gpu-sharing: exclusive`` book all there is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scoring.fleet import BoolArray, Fleet, IntArray, ModeCode
from scoring.request import WHOLE_MILLI, ContainerAsk, PodRequest, SharingMode

_INT32_MAX = np.iinfo(np.int32).max


@dataclass(frozen=True, slots=True)
class Need:
    """What one device would book for an ask, for every device of a fleet, shape ``(width, nodes)``.

    ``mib``, ``milli``  memory and thousandths of the physical device
    ``sized``           where an empty device would hold it and it books some memory
    """

    mib: IntArray
    milli: IntArray
    sized: BoolArray

    def within(self, free_mib: IntArray, free_milli: IntArray) -> BoolArray:
        """Return the devices that are large enough and have that much left."""
        return self.sized & (self.mib <= free_mib) & (self.milli <= free_milli)


def need_of(request: PodRequest, ask: ContainerAsk, fleet: Fleet) -> Need:
    """Return what one device of the ask would book, for every device."""
    memory, compute = _memory(ask, fleet), _compute(ask, fleet)
    sized = (memory > 0) & (memory <= fleet.capacity_mib)
    if not ask.is_whole:
        sized &= compute <= fleet.capacity_milli
    takes_all = takes_whole_device(request, ask)[fleet.mode]
    if takes_all.any():
        memory = np.where(takes_all, fleet.capacity_mib, memory)
        compute = np.where(takes_all, fleet.capacity_milli, compute)
    return Need(memory, compute, sized)


def takes_whole_device(request: PodRequest, ask: ContainerAsk) -> BoolArray:
    """Return for each ``ModeCode`` whether the ask books all of a device in that mode.

    So it does on a MIG instance, and where the mode's own kind of share is not accepted, only an exclusive one.
    """
    exclusive = SharingMode.EXCLUSIVE in request.sharing
    return np.array(
        [
            ask.is_whole or mode is ModeCode.MIG or (exclusive and mode.sharing not in request.sharing)
            for mode in ModeCode
        ]
    )


def times_over(amount: IntArray, factor: int, whole: IntArray) -> IntArray:
    """Return floor(amount * factor / whole), 0 where ``whole`` is 0.

    Exact: products stay below 2**53, and a quotient that is no integer differs from one by more than rounding can.
    """
    quotient = np.floor(amount.astype(np.float64) * factor / np.maximum(whole, 1))
    return np.where(whole > 0, np.minimum(quotient, _INT32_MAX), 0).astype(np.int32)


def _memory(ask: ContainerAsk, fleet: Fleet) -> IntArray:
    if ask.memory_mib is not None:
        return np.full_like(fleet.capacity_mib, min(ask.memory_mib, _INT32_MAX))
    assert ask.compute_milli is not None
    if ask.is_whole:
        return fleet.capacity_mib
    of_all = np.full_like(fleet.capacity_milli, WHOLE_MILLI)
    return times_over(fleet.capacity_mib, min(ask.compute_milli, _INT32_MAX), of_all)


def _compute(ask: ContainerAsk, fleet: Fleet) -> IntArray:
    if ask.compute_milli is not None:
        return np.full_like(fleet.capacity_milli, min(ask.compute_milli, _INT32_MAX))
    assert ask.memory_mib is not None
    return times_over(fleet.capacity_milli, min(ask.memory_mib, _INT32_MAX), fleet.capacity_mib)


def remainder_milli(fleet: Fleet, unbooked_mib: IntArray, unbooked_milli: IntArray) -> IntArray:
    """Return the scarcer of memory and compute in thousandths of each device, 0..1000."""
    of_memory = times_over(unbooked_mib, WHOLE_MILLI, fleet.capacity_mib)
    of_compute = times_over(unbooked_milli, WHOLE_MILLI, fleet.capacity_milli)
    return np.clip(np.minimum(of_memory, of_compute), 0, WHOLE_MILLI)
