"""The fleet: every node and device at one generation, as read-only numpy columns.

Node columns have shape ``(nodes,)``; device columns have shape ``(width, nodes)``: slot first, because every reduction
over the devices of a node then runs along contiguous memory. ``width`` is the device count of the largest node; a slot
without a device has ``kind`` -1 and is never usable. Rows are stable while a node lives; a removed node leaves an empty
row that the next new node takes.

A fleet never changes. ``FleetDraft`` (its own module) makes the next one, copying only the columns that a change
touches. ``take`` cuts out a few rows, so one node or five thousand go through the same code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import NewType

import numpy as np
import numpy.typing as npt

from scoring.catalog import DeviceKind
from scoring.request import SharingMode

Row = NewType("Row", int)
IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]
ByteArray = npt.NDArray[np.uint8]
BoolArray = npt.NDArray[np.bool_]

NO_KIND = -1
NO_RESOURCE = -1
MOST_BOOKED = 2**30
"""The most MiB or thousandths that a column says of one device: beyond any device, and far from overflowing."""


class NodeState(IntEnum):
    """What is known of a node. Only FRESH nodes take new pods."""

    EMPTY = 0
    WITHOUT_DEVICES = 1
    UNREPORTED = 2
    STALE = 3
    CONFLICTED = 4
    FRESH = 5


class DeviceState(IntEnum):
    """Whether a device takes new pods; ABSENT is a slot without a device."""

    ABSENT = 0
    OUT = 1
    SUSPECT = 2
    HEALTHY = 3


class ModeCode(IntEnum):
    """How a device may be shared, as a column can hold it; PLUGIN devices are handed out by NVIDIA's device plugin."""

    TIME_SLICING = 0
    MPS = 1
    MIG = 2
    PLUGIN = 3

    @property
    def sharing(self) -> SharingMode:
        """Return the kind of share that a device in this mode gives."""
        return _SHARING[self]


_SHARING = {
    ModeCode.TIME_SLICING: SharingMode.TIME_SLICING,
    ModeCode.MPS: SharingMode.MPS,
    ModeCode.MIG: SharingMode.MIG,
    ModeCode.PLUGIN: SharingMode.TIME_SLICING,
}


Changes = Mapping[tuple[int, int], tuple[int, int, int]]
"""(row, slot) -> MiB, thousandths and sharers to add, each of which may be negative."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """All nodes and devices at one generation.

    ==================  =======  ======================================================================================
    column              dtype    meaning
    ==================  =======  ======================================================================================
    node_state          uint8    a ``NodeState``
    order               uint32   fixed order among equal nodes: a hash of the name, the same in every replica
    row_generation      int64    generation at which anything but load last changed
    load_generation     int64    generation at which load or settling compute last changed
    cpu_capacity_milli  int64    allocatable CPU, 1/1000 core
    cpu_booked_milli    int64    effective CPU requests of the pods bound there
    host_capacity_mib   int64    allocatable host memory
    host_booked_mib     int64    effective host memory requests of the pods bound there
    kind                int16    index into ``kinds``, -1 for no device
    device_state        uint8    a ``DeviceState``
    mode                uint8    a ``ModeCode``
    capacity_mib        int32    schedulable memory: total - reserved
    capacity_milli      int32    1000, or a MIG instance's part of its GPU's SMs
    booked_mib          int32    memory given to pods; may exceed capacity only where two truths contradict
    booked_milli        int32    compute given to pods
    sharers             int32    pods holding a share
    foreign_mib         int32    memory held by processes of no pod of ours
    load                float32  EWMA of utilisation, 0..1, NaN when unknown
    settling_milli      int32    compute of pods placed too recently for ``load`` to show them
    numa                int16    NUMA node, -1 unknown
    link                int16    NVLink group within the node, -1 none
    resource            int16    index into ``resources`` for a device that NVIDIA's device plugin hands out, else -1
    replicas            int32    replicas of it that the plugin offers
    replicas_taken      int32    replicas given out; only the sum over a node's devices of one resource is known
    ==================  =======  ======================================================================================
    """

    generation: int
    names: tuple[str, ...]
    rows: Mapping[str, Row]
    uuids: tuple[tuple[str, ...], ...]
    kinds: tuple[DeviceKind, ...]
    resources: tuple[str, ...]
    node_state: ByteArray
    order: npt.NDArray[np.uint32]
    row_generation: LongArray
    load_generation: LongArray
    cpu_capacity_milli: LongArray
    cpu_booked_milli: LongArray
    host_capacity_mib: LongArray
    host_booked_mib: LongArray
    kind: npt.NDArray[np.int16]
    device_state: ByteArray
    mode: ByteArray
    capacity_mib: IntArray
    capacity_milli: IntArray
    booked_mib: IntArray
    booked_milli: IntArray
    sharers: IntArray
    foreign_mib: IntArray
    load: FloatArray
    settling_milli: IntArray
    numa: npt.NDArray[np.int16]
    link: npt.NDArray[np.int16]
    resource: npt.NDArray[np.int16]
    replicas: IntArray
    replicas_taken: IntArray

    @property
    def width(self) -> int:
        """Return the number of device slots of each node."""
        return int(self.kind.shape[0])

    def __len__(self) -> int:
        return len(self.names)

    def changed_since(self, generation: int) -> npt.NDArray[np.intp]:
        """Return the rows in which anything but load changed after ``generation``, ascending."""
        return np.flatnonzero(self.row_generation > generation)

    def scored_since(self, generation: int) -> npt.NDArray[np.intp]:
        """Return the rows in which anything at all changed after ``generation``, load included, ascending."""
        return np.flatnonzero(np.maximum(self.row_generation, self.load_generation) > generation)

    def take(self, rows: npt.NDArray[np.intp]) -> Fleet:
        """Return a fleet of these rows only, in this order, with columns that stay read-only."""
        at = rows if len(rows) != 1 else slice(int(rows[0]), int(rows[0]) + 1)  # A slice takes a fifth of the time.
        columns = {name: _cut(getattr(self, name), at) for name in COLUMNS}
        names = tuple(self.names[row] for row in rows)
        return replace(
            self,
            names=names,
            rows={name: Row(index) for index, name in enumerate(names)},
            uuids=tuple(self.uuids[row] for row in rows),
            **columns,  # type: ignore[arg-type]
        )

    def part(self, rows: npt.NDArray[np.intp], changes: Changes) -> Fleet:
        """Return a fleet of these rows only, as it would be with other bookings.

        ``changes`` are those of ``with_shares``, by the rows of this fleet; what lies on other rows does not count.
        """
        at = {int(row): index for index, row in enumerate(rows)}
        here = {(at[row], slot): amounts for (row, slot), amounts in changes.items() if row in at}
        return self.take(rows).with_shares(here) if here else self.take(rows)

    def with_shares(self, changes: Changes) -> Fleet:
        """Return the fleet as it would be with other bookings; what-if only, the generation stays.

        ``changes`` says what is added where.
        """
        mib, milli, sharers = self.booked_mib.copy(), self.booked_milli.copy(), self.sharers.copy()
        for (row, slot), (add_mib, add_milli, add_sharers) in changes.items():
            mib[slot, row] = _bounded(int(mib[slot, row]) + add_mib)
            milli[slot, row] = _bounded(int(milli[slot, row]) + add_milli)
            sharers[slot, row] += add_sharers
        for column in (mib, milli, sharers):
            column.setflags(write=False)
        return replace(self, booked_mib=mib, booked_milli=milli, sharers=sharers)

    def emptied(self) -> Fleet:
        """Return the fleet as it would be with every pod and foreign process gone and every device healthy."""
        nothing = np.zeros_like(self.booked_mib)
        nothing.setflags(write=False)
        healthy = np.where(self.kind >= 0, np.uint8(DeviceState.HEALTHY), np.uint8(DeviceState.ABSENT))
        fresh = np.full_like(self.node_state, NodeState.FRESH)
        return replace(
            self,
            booked_mib=nothing,
            booked_milli=nothing,
            sharers=nothing,
            foreign_mib=nothing,
            replicas_taken=nothing,
            device_state=healthy,
            node_state=fresh,
        )


def _bounded(amount: int) -> int:
    return max(-MOST_BOOKED, min(amount, MOST_BOOKED))


def _cut(column: npt.NDArray[np.generic], rows: npt.NDArray[np.intp] | slice) -> npt.NDArray[np.generic]:
    cut = column[..., rows]
    cut.setflags(write=False)
    return cut


NODE_COLUMNS: Mapping[str, tuple[type[np.generic], float]] = {
    "node_state": (np.uint8, NodeState.EMPTY),
    "order": (np.uint32, 0),
    "row_generation": (np.int64, 0),
    "load_generation": (np.int64, 0),
    "cpu_capacity_milli": (np.int64, 0),
    "cpu_booked_milli": (np.int64, 0),
    "host_capacity_mib": (np.int64, 0),
    "host_booked_mib": (np.int64, 0),
}
"""Node columns: name -> dtype and the value of an empty row."""

DEVICE_COLUMNS: Mapping[str, tuple[type[np.generic], float]] = {
    "kind": (np.int16, NO_KIND),
    "device_state": (np.uint8, DeviceState.ABSENT),
    "mode": (np.uint8, ModeCode.TIME_SLICING),
    "capacity_mib": (np.int32, 0),
    "capacity_milli": (np.int32, 0),
    "booked_mib": (np.int32, 0),
    "booked_milli": (np.int32, 0),
    "sharers": (np.int32, 0),
    "foreign_mib": (np.int32, 0),
    "load": (np.float32, np.nan),
    "settling_milli": (np.int32, 0),
    "numa": (np.int16, -1),
    "link": (np.int16, -1),
    "resource": (np.int16, NO_RESOURCE),
    "replicas": (np.int32, 0),
    "replicas_taken": (np.int32, 0),
}
"""Device columns: name -> dtype and the value of a slot without a device."""

COLUMNS = (*NODE_COLUMNS, *DEVICE_COLUMNS)

assert set(COLUMNS) < {field.name for field in fields(Fleet)}
