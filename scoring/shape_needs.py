"""What a shape of the mix needs of one device of a kind."""

from __future__ import annotations

from scoring.catalog import DeviceKind
from scoring.request import WHOLE_MILLI, SharingMode
from scoring.workload import Shape


def need_on_kind(shape: Shape, kind: DeviceKind) -> int | None:
    """Return what a shape needs of one device of a kind, 1..1000; None if the device is of no use to it.

    The device stands for the physical one or a MIG instance, which a pod takes whole.
    """
    if shape.count == 0 or not shape.conditions.matches(kind):
        return None
    of_memory = -(-(shape.memory_mib or 0) * WHOLE_MILLI // max(kind.total_mib, 1))
    is_whole = shape.memory_mib is None and shape.compute_milli == WHOLE_MILLI
    if kind.mig_profile is not None:
        enough = of_memory <= WHOLE_MILLI and (is_whole or (shape.compute_milli or 0) <= kind.sm_milli)
        return WHOLE_MILLI if enough and SharingMode.MIG in shape.sharing else None
    if shape.sharing == {SharingMode.MIG} or of_memory > WHOLE_MILLI:
        return None
    if shape.sharing == {SharingMode.EXCLUSIVE}:
        return WHOLE_MILLI
    return max(of_memory, shape.compute_milli or 0, 1)
