"""How a change makes the next fleet: columns that can be written, copied only when a snapshot holds them.

One draft belongs to one writer. ``freeze`` hands out the columns themselves, read-only; the first write to a column
after that copies it. So a snapshot costs nothing, and a change costs at most one copy of the columns that it touches
(160 KiB each at 40,000 devices), however many changes follow before the next snapshot.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt

from scoring.catalog import DeviceKind
from scoring.fleet import COLUMNS, DEVICE_COLUMNS, NODE_COLUMNS, Fleet, NodeState, Row

_FIRST_ROWS = 64
_FIRST_WIDTH = 8


class FleetDraft:
    """The one writable copy of the fleet.

    ``generation`` grows with every change that a decision could notice; changes of load alone do not touch
    ``row_generation``, so that what is remembered per row outlives them.
    """

    def __init__(self) -> None:
        self.generation = 0
        self._names: list[str] = []
        self._rows: dict[str, Row] = {}
        self._uuids: list[tuple[str, ...]] = []
        self._kinds: list[DeviceKind] = []
        self._kind_index: dict[DeviceKind, int] = {}
        self._free_kinds: list[int] = []
        self._resource_index: dict[str, int] = {}
        self._free_rows: list[Row] = []
        self._allocated = _FIRST_ROWS
        self._width = _FIRST_WIDTH
        self._columns: dict[str, npt.NDArray[np.generic]] = {
            name: _empty_column(name, self._width, self._allocated) for name in COLUMNS
        }
        self._frozen: Fleet | None = None
        self._shared: set[str] = set()
        self._views: dict[str, npt.NDArray[np.generic]] = {}
        self._names_shared = False
        self._listed: tuple[tuple[str, ...], tuple[tuple[str, ...], ...]] | None = None

    @property
    def rows(self) -> Mapping[str, Row]:
        """Return the row of each node by name."""
        return self._rows

    def uuids(self, row: Row) -> tuple[str, ...]:
        """Return the UUIDs of a node's devices in slot order."""
        return self._uuids[row]

    def value(self, column: str, row: Row, slot: int | None = None) -> float:
        """Return one value of a column."""
        array = self._columns[column]
        return array[row].item() if slot is None else array[slot, row].item()  # type: ignore[no-any-return]

    def add_node(self, name: str) -> Row:
        """Return the row of a node, made empty if the node is new."""
        if name in self._rows:
            return self._rows[name]
        self._own_names()
        row = self._free_rows.pop() if self._free_rows else self._append_row()
        self._names[row] = name
        self._rows[name] = row
        self.set_node(row, node_state=NodeState.WITHOUT_DEVICES, order=zlib.crc32(name.encode()))
        return row

    def remove_node(self, name: str) -> None:
        """Empty the row of a node. Unknown names are ignored."""
        if name not in self._rows:
            return
        self._own_names()
        row = self._rows.pop(name)
        self._names[row] = ""
        self._uuids[row] = ()
        for column, (_, empty) in {**NODE_COLUMNS, **DEVICE_COLUMNS}.items():
            self._own(column)[..., row] = empty
        self._free_rows.append(row)
        self.touch(row)

    def set_node(self, row: Row, **values: float) -> None:
        """Write node columns of one row; a value that is already there changes nothing."""
        changed = [name for name, value in values.items() if self._columns[name][row] != value]
        for name in changed:
            self._own(name)[row] = values[name]
        if changed:
            self.touch(row)

    def set_devices(self, row: Row, uuids: tuple[str, ...], columns: Mapping[str, list[float]]) -> None:
        """Replace the devices of a node: one value a device in each given column, slot order; others become empty.

        A slot beyond the devices becomes empty in every device column, books included.
        """
        self._widen(len(uuids))
        if uuids != self._uuids[row]:
            self._own_names()
            self._uuids[row] = uuids
            self.touch(row)
        for name, (_, empty) in DEVICE_COLUMNS.items():
            wanted = np.full(self._width, empty, self._columns[name].dtype)
            wanted[: len(uuids)] = columns.get(name, empty)
            if not np.array_equal(wanted, self._columns[name][:, row], equal_nan=name == "load"):
                self._own(name)[:, row] = wanted
                self.touch(row)

    def set_device(self, row: Row, slot: int, **values: float) -> None:
        """Write device columns of one device; a value that is already there changes nothing."""
        changed = [name for name, value in values.items() if self._differs(name, row, slot, value)]
        for name in changed:
            self._own(name)[slot, row] = values[name]
        if changed:
            self.touch(row)

    def set_load(self, row: Row, column: Literal["load", "settling_milli"], values: npt.NDArray[np.generic]) -> None:
        """Write a column of the load of a node's devices (slot order). Of the row that does not count as a change."""
        count = len(values)
        # Bytes, because reports come by the thousand and array_equal costs more than all the rest of this.
        if self._columns[column][:count, row].tobytes() == values.tobytes():
            return
        self._own(column)[:count, row] = values
        self.generation += 1
        self._own("load_generation")[row] = self.generation
        self._frozen = None

    def book(self, row: Row, slot: int, memory_mib: int, compute_milli: int, sharers: int) -> None:
        """Add to the books of one device; negative values take away."""
        self._own("booked_mib")[slot, row] += memory_mib
        self._own("booked_milli")[slot, row] += compute_milli
        self._own("sharers")[slot, row] += sharers
        self.touch(row)

    def kind_index(self, kind: DeviceKind) -> int:
        """Return the number of a device kind, giving it one when it is new."""
        if kind not in self._kind_index:
            if not self._free_kinds:
                self._free_kinds.append(len(self._kinds))
                self._kinds.append(kind)
            number = self._free_kinds.pop()
            self._kind_index[kind], self._kinds[number] = number, kind
            self._frozen = None
        return self._kind_index[kind]

    def forget_kinds(self) -> set[DeviceKind]:
        """Free the numbers of kinds that no device has, for kinds to come; return the kinds that devices have."""
        used = set(np.unique(self._columns["kind"]).tolist())
        for kind, number in tuple(self._kind_index.items()):
            if number not in used:
                del self._kind_index[kind]
                self._free_kinds.append(number)
        return set(self._kind_index)

    def resource_index(self, resource: str) -> int:
        """Return the number of a resource of NVIDIA's device plugin, giving it one when it is new."""
        if resource not in self._resource_index:
            self._resource_index[resource] = len(self._resource_index)
            self._frozen = None
        return self._resource_index[resource]

    def touch(self, row: Row) -> None:
        """Note that a row changed."""
        self.generation += 1
        self._frozen = None
        self._own("row_generation")[row] = self.generation

    def freeze(self) -> Fleet:
        """Return the fleet as it is now. Costs nothing while nothing changes."""
        if self._frozen is None:
            self._share()
            self._names_shared = True
            if self._listed is None:
                self._listed = tuple(self._names), tuple(self._uuids)
            names, uuids = self._listed
            self._frozen = Fleet(
                generation=self.generation,
                names=names,
                rows=self._rows,
                uuids=uuids,
                kinds=tuple(self._kinds),
                resources=tuple(self._resource_index),
                **self._views,  # type: ignore[arg-type]
            )
        return self._frozen

    def _share(self) -> None:
        """Make the views that snapshots hold; a column that nobody wrote since the last one keeps its view."""
        count = len(self._names)
        for name, column in self._columns.items():
            if name not in self._shared or self._views[name].shape[-1] != count:
                self._views[name] = view = column[..., :count]
                view.setflags(write=False)
        self._shared = set(COLUMNS)

    def _differs(self, column: str, row: Row, slot: int, value: float) -> bool:
        """Return whether a value is another one; an unknown load (NaN) equals itself."""
        there = self._columns[column]
        new = there.dtype.type(value)
        return bool(there[slot, row] != new) and not (np.isnan(there[slot, row]) and np.isnan(new))

    def _own(self, name: str) -> npt.NDArray[np.generic]:
        """Return a column that may be written, copied if a snapshot holds it."""
        if name in self._shared:
            self._columns[name] = self._columns[name].copy()
            self._shared.discard(name)
        return self._columns[name]

    def _own_names(self) -> None:
        """Make names and UUIDs writable: those that a snapshot holds stay as they are."""
        self._frozen = self._listed = None
        if self._names_shared:
            self._rows = dict(self._rows)
            self._names_shared = False

    def _append_row(self) -> Row:
        row = Row(len(self._names))
        self._names.append("")
        self._uuids.append(())
        if row >= self._allocated:
            self._resize(self._width, self._allocated * 2)
        return row

    def _widen(self, devices: int) -> None:
        if devices > self._width:
            self._resize(devices, self._allocated)

    def _resize(self, width: int, allocated: int) -> None:
        for name, old in self._columns.items():
            grown = _empty_column(name, width, allocated)
            if name in DEVICE_COLUMNS:
                grown[: old.shape[0], : old.shape[1]] = old
            else:
                grown[: old.shape[0]] = old
            self._columns[name] = grown
        self._width, self._allocated = width, allocated
        self._shared = set()
        self._frozen = None


def _empty_column(name: str, width: int, rows: int) -> npt.NDArray[np.generic]:
    if name in NODE_COLUMNS:
        dtype, empty = NODE_COLUMNS[name]
        return np.full(rows, empty, dtype)
    dtype, empty = DEVICE_COLUMNS[name]
    return np.full((width, rows), empty, dtype)
