"""The fleet as metrics: sums by node and product, straight from the columns to the lines of the page.

A cluster of 5,000 nodes is 30,000 lines and more, so nothing is done line by line but joining two strings: sums are
numpy's, and what stands before each value is kept while nodes and their devices stay the same. Runs in any thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress

import numpy as np
import numpy.typing as npt

from extender import metric_families as families
from extender.metric_families import Family
from extender.metrics import Renderer
from extender.store import ClusterStore
from scoring.fleet import BoolArray, DeviceState, Fleet

_MIB = 2**20
_STATES = tuple(state for state in DeviceState if state is not DeviceState.ABSENT)

Sums = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Layout:
    """Which device counts for which group, as long as no device comes or goes.

    A group is the devices of one product on one node. ``present`` picks the devices out of a column, ``group`` has the
    number of its group for each of them, ``labels`` the labels of each group.
    """

    key: tuple[object, ...]
    present: BoolArray
    group: npt.NDArray[np.intp]
    labels: tuple[str, ...]
    products: npt.NDArray[np.intp]
    product_names: tuple[str, ...]

    def sums(self, column: npt.NDArray[np.generic]) -> Sums:
        """Return the sum of a device column for each group."""
        return _added(self.group, column[self.present].astype(np.float64), len(self.labels))


class FleetText:
    """Renders the fleet's families; remembers the layout and the last text."""

    def __init__(self, store: ClusterStore) -> None:
        self._store = store
        self._layout: _Layout | None = None
        self._heads: dict[str, list[str]] = {}
        self._generation = -1
        self._text = b""

    def part(self) -> Renderer:
        """Take the snapshot; what is returned renders it."""
        return partial(self.render, self._store.snapshot())

    def render(self, fleet: Fleet) -> bytes:
        """Return the families' lines for a fleet."""
        if fleet.generation != self._generation:
            layout = self._laid_out(fleet)
            self._text = "".join(self._chunks(fleet, layout)).encode()
            self._generation = fleet.generation
        return self._text

    def _laid_out(self, fleet: Fleet) -> _Layout:
        key = (fleet.kind, fleet.names, fleet.kinds)
        if self._layout is None or any(old is not new for old, new in zip(self._layout.key, key, strict=True)):
            self._layout, self._heads = _layout(fleet, key), {}
        return self._layout

    def _chunks(self, fleet: Fleet, layout: _Layout) -> Iterator[str]:
        yield from self._devices(fleet, layout)
        for family, values, shown in _sums(fleet, layout):
            yield _preamble(family)
            heads = self._heads_of(family, "")
            if shown is None:
                yield _lines(heads, values)
            else:
                yield _lines(list(compress(heads, shown.tolist())), values[shown])
        yield _preamble(families.SHARED_PODS)
        heads = [f'{families.SHARED_PODS.name}{{product="{name}"}} ' for name in layout.product_names]
        shares = _added(layout.products, layout.sums(fleet.sharers), len(heads))
        yield _lines(heads, shares)

    def _devices(self, fleet: Fleet, layout: _Layout) -> Iterator[str]:
        yield _preamble(families.DEVICES)
        for state in _STATES:
            count = layout.sums(fleet.device_state == state)
            shown = count > 0
            heads = self._heads_of(families.DEVICES, f',state="{state.name.lower()}"')
            yield _lines(list(compress(heads, shown.tolist())), count[shown])

    def _heads_of(self, family: Family, more: str) -> list[str]:
        key = family.name + more
        if key not in self._heads:
            assert self._layout is not None
            self._heads[key] = [f"{family.name}{{{labels}{more}}} " for labels in self._layout.labels]
        return self._heads[key]


def _layout(fleet: Fleet, key: tuple[object, ...]) -> _Layout:
    products = sorted({kind.product for kind in fleet.kinds})
    number = {name: at for at, name in enumerate(products)}
    of_kind = np.array([number[kind.product] for kind in fleet.kinds], np.intp)
    present = fleet.kind >= 0
    _, rows = np.nonzero(present)
    pairs = rows * max(len(products), 1) + (of_kind[fleet.kind[present]] if len(of_kind) else 0)
    found, group = np.unique(pairs, return_inverse=True)
    row_of, product_of = np.divmod(found, max(len(products), 1))
    escaped = [_escaped(name) for name in products]
    labels = tuple(
        f'node="{_escaped(fleet.names[row])}",product="{escaped[product]}"'
        for row, product in zip(row_of.tolist(), product_of.tolist(), strict=True)
    )
    return _Layout(key, present, group, labels, product_of, tuple(escaped))


def _sums(fleet: Fleet, layout: _Layout) -> Iterator[tuple[Family, Sums, BoolArray | None]]:
    """Yield each family with its value for each group, and which groups are shown; None for all."""
    free_mib, free_milli = _free(fleet)
    healthy = fleet.device_state >= DeviceState.SUSPECT
    yield families.MEMORY_TOTAL, layout.sums(fleet.capacity_mib) * _MIB, None
    yield families.MEMORY_ALLOCATED, layout.sums(fleet.booked_mib) * _MIB, None
    yield families.COMPUTE_TOTAL, layout.sums(fleet.capacity_milli) / 1000, None
    yield families.COMPUTE_ALLOCATED, layout.sums(fleet.booked_milli) / 1000, None
    for family, sums in (
        (families.MEMORY_FOREIGN, layout.sums(fleet.foreign_mib) * _MIB),
        (families.MEMORY_STRANDED, layout.sums(free_mib * (healthy & (free_milli == 0))) * _MIB),
        (families.SHARES_ON_OUT, layout.sums(fleet.sharers * (fleet.device_state == DeviceState.OUT))),
    ):
        yield family, sums, sums > 0
    free = layout.sums(free_milli * healthy)
    on_devices_with_pods = layout.sums(free_milli * (healthy & (fleet.sharers > 0)))
    has_free = free > 0
    yield families.FRAGMENTATION, on_devices_with_pods / np.where(has_free, free, 1), has_free


def _free(fleet: Fleet) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return what each device has free: MiB, less what foreign processes hold, and thousandths."""
    mib = np.maximum(fleet.capacity_mib - fleet.booked_mib - fleet.foreign_mib, 0)
    return mib, np.maximum(fleet.capacity_milli - fleet.booked_milli, 0)


def _added(number: npt.NDArray[np.intp], amount: Sums, count: int) -> Sums:
    return np.asarray(np.bincount(number, amount, count), np.float64)


def _preamble(family: Family) -> str:
    return f"# HELP {family.name} {family.words}\n# TYPE {family.name} {family.kind}\n"


def _lines(heads: Sequence[str], values: Sums) -> str:
    if not heads:
        return ""
    texts = map(str, values.tolist())
    return "\n".join(map(str.__add__, heads, texts)) + "\n"


def _escaped(text: str) -> str:
    """Return a label's value as the text format wants it."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
