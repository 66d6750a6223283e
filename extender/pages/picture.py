"""The fleet as the live page draws it: flat typed columns, one entry per device, node by node.

A picture is made from a snapshot and the books; only nodes that changed are looked at again, so that 5,000 nodes of 8
devices cost milliseconds a second. Fractions are thousandths of the device's own capacity, little-endian; what is not
known is 65535.
"""

from __future__ import annotations

import zlib
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from extender.ledger import Ledger
from extender.noderecord import NodeRecord
from node_agent.report import Report
from scoring.fleet import NO_KIND, DeviceState, Fleet, NodeState

UNKNOWN = 65_535
_MOST = 65_000
_WHOLE = 1000
_TINTS = 256
_MOST_NAMESPACES = 10_000
"""More were seen under one layout: the picture is made anew, and those that are gone are forgotten."""

Shorts = npt.NDArray[np.uint16]
ShareRow = tuple[tuple[tuple[int, int, int, str], ...], ...]
"""For each device slot of a node: (thousandths of compute and of memory, tint, namespace) of each pod on it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What seldom changes: which devices there are, and where. ``cells`` are (row, slot) pairs in drawing order."""

    names: tuple[str, ...]
    uuids: tuple[tuple[str, ...], ...]
    kind: npt.NDArray[np.int16]
    rows: npt.NDArray[np.intp]
    slots: npt.NDArray[np.intp]

    @classmethod
    def of(cls, fleet: Fleet) -> Layout:
        """Return the layout of a fleet."""
        rows, slots = np.nonzero(fleet.kind.T != NO_KIND)
        return cls(fleet.names, fleet.uuids, fleet.kind, rows, slots)

    def holds(self, fleet: Fleet) -> bool:
        """Tell whether the fleet has the same devices in the same places."""
        if self.names is fleet.names and self.uuids is fleet.uuids and self.kind is fleet.kind:
            return True
        return self.names == fleet.names and self.uuids == fleet.uuids and np.array_equal(self.kind, fleet.kind)

    def message(self, fleet: Fleet) -> dict[str, object]:
        """Return the layout for the page."""
        kinds = [
            {
                "product": kind.product,
                "generation": kind.architecture.label,
                "order": int(kind.architecture),
                "mib": kind.total_mib,
                "mig": kind.mig_profile,
                "milli": kind.sm_milli,
            }
            for kind in fleet.kinds
        ]
        return {
            "nodes": list(self.names),
            "kinds": kinds,
            "node_of": packed(self.rows, "<u4"),
            "kind_of": packed(fleet.kind.T[self.rows, self.slots], "<u2"),
        }


@dataclass(frozen=True, slots=True)
class Picture:
    """All devices of one layout at one generation."""

    layout: Layout
    generation: int
    columns: Mapping[str, Shorts]
    shares: Sequence[ShareRow]
    namespaces: Mapping[str, int]
    """Every namespace that ever held a share under this layout, numbered as they came; grows with later pictures."""
    known: int
    """How many namespaces there were when this picture was made."""

    def message(self, fleet: Fleet) -> dict[str, object]:
        """Return everything, for a page that has nothing yet."""
        every = np.arange(len(self.layout.rows))
        return {"layout": self.layout.message(fleet), "namespaces": self._names(0), "cells": self._cells(every)}

    def changes(self, before: Picture) -> dict[str, object]:
        """Return what differs from an earlier picture of the same layout; empty where nothing does."""
        differs = np.zeros(len(self.layout.rows), dtype=bool)
        for name, column in self.columns.items():
            differs |= column != before.columns[name]
        moved = {row for row, (new, old) in enumerate(zip(self.shares, before.shares, strict=True)) if new is not old}
        if moved:
            differs |= np.isin(self.layout.rows, np.fromiter(moved, dtype=np.intp, count=len(moved)))
        index = np.flatnonzero(differs)
        if not len(index):
            return {}
        more = self._names(before.known)
        return {"cells": self._cells(index), **({"namespaces": more} if more else {})}

    def _names(self, since: int) -> list[str]:
        return list(islice(self.namespaces, since, self.known))

    def _cells(self, index: npt.NDArray[np.intp]) -> dict[str, object]:
        counts, shares = [], list[tuple[int, int, int, int]]()
        for row, slot in zip(self.layout.rows[index].tolist(), self.layout.slots[index].tolist(), strict=True):
            on_device = self.shares[row][slot] if slot < len(self.shares[row]) else ()
            counts.append(len(on_device))
            shares.extend((*parts, self.namespaces[namespace]) for *parts, namespace in on_device)
        table = np.array(shares, dtype=np.uint16).reshape(-1, 4)
        return {
            "index": packed(index, "<u4"),
            **{name: packed(column[index], "<u2") for name, column in self.columns.items()},
            "counts": packed(np.array(counts, dtype=np.uint16), "<u2"),
            "share_compute": packed(table[:, 0], "<u2"),
            "share_memory": packed(table[:, 1], "<u2"),
            "share_tint": packed(table[:, 2], "<u2"),
            "share_space": packed(table[:, 3], "<u2"),
        }


class Painter:
    """Makes pictures one after the other, looking again only at nodes whose books or reports changed."""

    def __init__(self) -> None:
        self._layout: Layout | None = None
        self._generation = -1
        self._shares: list[ShareRow] = []
        self._namespaces: dict[str, int] = {}
        self._used = np.empty((0, 0), dtype=np.int64)
        self._reports: dict[int, Report] = {}

    def paint(self, fleet: Fleet, ledger: Ledger, records: Iterable[NodeRecord]) -> Picture:
        """Return the picture of a snapshot; ``records`` are all nodes, for what their agents measured."""
        if self._layout is None or not self._layout.holds(fleet) or len(self._namespaces) > _MOST_NAMESPACES:
            self._layout, self._generation = Layout.of(fleet), -1
            self._shares, self._namespaces = [() for _ in fleet.names], {}
            self._used, self._reports = np.full(fleet.kind.shape, -1, dtype=np.int64), {}
        for row in fleet.changed_since(self._generation).tolist():
            fresh = _share_row(fleet, row, ledger)
            if fresh != self._shares[row]:
                self._shares[row] = fresh
                self._number(fresh)
        for record in records:
            if record.report is not None and self._reports.get(record.row) is not record.report:
                self._reports[record.row] = record.report
                self._measure(fleet, record.row, record.report)
        self._generation = fleet.generation
        columns, names = _columns(fleet, self._layout, self._used), self._namespaces
        return Picture(self._layout, fleet.generation, columns, tuple(self._shares), names, len(names))

    def _number(self, row: ShareRow) -> None:
        for on_device in row:
            for *_, namespace in on_device:
                self._namespaces.setdefault(namespace, len(self._namespaces))

    def _measure(self, fleet: Fleet, row: int, report: Report) -> None:
        """Write memory in use, MiB, as a node reports it; -1 where it does not."""
        used = {device.uuid: device.used_mib for device in report.devices if device.used_mib is not None}
        for slot, uuid in enumerate(fleet.uuids[row]):
            self._used[slot, row] = used.get(uuid, -1)


def packed(column: npt.NDArray[np.generic], dtype: str) -> str:
    """Return a column as base64 of little-endian integers."""
    return b64encode(column.astype(dtype).tobytes()).decode("ascii")


def tint_of(uid: str) -> int:
    """Return the colour of a pod, 0 to 255, the same in every replica and run."""
    return zlib.crc32(uid.encode()) % _TINTS


def _columns(fleet: Fleet, layout: Layout, used_mib: npt.NDArray[np.int64]) -> dict[str, Shorts]:
    def cells(column: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
        return np.asarray(column.T[layout.rows, layout.slots], dtype=np.float64)

    room_mib, room_milli = cells(fleet.capacity_mib), cells(fleet.capacity_milli)
    used = cells(used_mib)
    state = cells(fleet.device_state)
    stale = fleet.node_state[layout.rows] != NodeState.FRESH
    return {
        "compute": _thousandths(cells(fleet.booked_milli), room_milli),
        "memory": _thousandths(cells(fleet.booked_mib), room_mib),
        "foreign": _thousandths(cells(fleet.foreign_mib), room_mib),
        "load": _thousandths(cells(fleet.load), np.ones(len(layout.rows))),
        "used": np.where(used < 0, UNKNOWN, _thousandths(np.maximum(used, 0), room_mib)).astype(np.uint16),
        "state": np.where(stale & (state != DeviceState.OUT), DeviceState.ABSENT, state).astype(np.uint16),
    }


def _thousandths(part: npt.NDArray[np.float64], whole: npt.NDArray[np.float64]) -> Shorts:
    ratio = np.divide(part * _WHOLE, whole, out=np.zeros_like(part), where=whole > 0)
    return np.where(np.isnan(ratio), UNKNOWN, np.clip(ratio, 0, _MOST)).astype(np.uint16)


def _share_row(fleet: Fleet, row: int, ledger: Ledger) -> ShareRow:
    slots = {uuid: slot for slot, uuid in enumerate(fleet.uuids[row])}
    found: list[list[tuple[int, int, int, str]]] = [[] for _ in slots]
    for holding in ledger.on_node(fleet.names[row]):
        for booking in holding.booked:
            slot = slots.get(booking.uuid)
            if slot is not None:
                milli = _part(booking.compute_milli, int(fleet.capacity_milli[slot, row]))
                memory = _part(booking.memory_mib, int(fleet.capacity_mib[slot, row]))
                found[slot].append((milli, memory, tint_of(holding.pod.uid), holding.pod.namespace))
    return tuple(map(tuple, found))


def _part(amount: int, whole: int) -> int:
    return min(amount * _WHOLE // whole, _MOST) if whole else 0
