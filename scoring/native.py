"""What ``standing`` works out, by the helper in C instead of numpy: equal to the last bit (``tests/property``).

Lays a fleet, an ask and an outlook out as the structs of ``native.c``. The layouts made last are kept, because the same
fleet, shape and outlook are asked for again and again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from scoring.catalog import DeviceKind
from scoring.eligibility import mode_matches
from scoring.feasibility import reason_number, shortage_reasons
from scoring.fleet import Fleet, FloatArray, IntArray
from scoring.helper import Lasting, Question, Weights
from scoring.native_library import (
    DEVICE_FIELDS,
    FLEET_WORDS,
    LOAD_FIELDS,
    MOST_WIDTH,
    NODE_FIELDS,
    SCORERS,
    AskStruct,
    Column,
    FleetWords,
    LoadWords,
    OutlookStruct,
    StandingStruct,
    open_library,
)
from scoring.needs import takes_whole_device
from scoring.outlook import Outlook
from scoring.policies.cost import RANGE_MILLI, STEP_MILLI
from scoring.policies.foresight import CPU_NOISE, CPU_SHORTAGE, FRAGMENTATION, WORTH
from scoring.policies.load import FOREIGN_PART, UNKNOWN_LOAD
from scoring.policies.preference import weight_by_kind
from scoring.policies.scarcity import KINDS, SLOTS
from scoring.policies.sufficiency import value_by_kind
from scoring.request import WHOLE_MILLI, PodRequest
from scoring.status import Reason

_MOST = np.iinfo(np.int32).max
_MOST_DEVICES = np.iinfo(np.int16).max
_ASKS_KEPT = 512
_FEW = 64
"""Rows up to which a fleet counts as a part of one."""
_STEP_REASONS = (
    Reason.NO_DEVICES,
    Reason.TOO_FEW_DEVICES,
    Reason.NO_MATCHING_DEVICE,
    Reason.NO_SHARING_MODE,
    Reason.DEVICE_TOO_SMALL,
    Reason.NO_HEALTHY_DEVICE,
)
_NODE_REASONS = (Reason.NO_REPORT, Reason.NODE_CONFLICTED, Reason.UNKNOWN_NODE)

Array = npt.NDArray[np.generic]

_columns_of: Callable[[Fleet], tuple[Array, ...]] = attrgetter(*DEVICE_FIELDS, *NODE_FIELDS)


@dataclass(frozen=True, slots=True)
class _Laid:
    """A struct, and the arrays that it points into."""

    struct: ctypes.Structure
    held: tuple[Array, ...]

    @property
    def address(self) -> int:
        return ctypes.addressof(self.struct)


@dataclass(frozen=True, slots=True)
class _LaidFleet:
    """``fleet`` of ``native.c``, the columns and words that it was made of, and the arrays that it points into."""

    struct: ctypes.Array[ctypes.c_int64]
    columns: tuple[Array, ...]
    words: list[int]
    held: list[Array]

    @property
    def address(self) -> int:
        return ctypes.addressof(self.struct)


class Native:
    """The helper in C, with the layouts made last."""

    def __init__(self, library: ctypes.PyDLL) -> None:
        self._library = library
        self._fleet: tuple[Fleet, _LaidFleet] | None = None
        self._part: tuple[Fleet, _LaidFleet] | None = None
        self._outlook: tuple[Outlook, _Laid] | None = None
        self._asks: dict[tuple[PodRequest, Weights], tuple[tuple[DeviceKind, ...], _Laid]] = {}

    @classmethod
    def load(cls) -> Native | None:
        """Return the helper; None where there is none."""
        library = open_library()
        return None if library is None else cls(library)

    def can_do(self, question: Question) -> bool:
        """Return whether the helper knows all that the question needs."""
        request, outlook = question.request, question.outlook
        return (
            question.fleet.width <= MOST_WIDTH
            and request.containers[0].count <= _MOST_DEVICES
            and 0 <= request.cpu_milli <= _MOST
            and not request.conditions.names_devices
            and _are_known(question.weights)
            and (outlook.unusable is None) == (outlook.demand is None)
            and (outlook.prospect is None or outlook.demand is not None)
        )

    def stand(self, question: Question, rows: npt.NDArray[np.intp], into: Lasting) -> None:
        """Write the lasting part of these rows into columns; every other row stays as it is."""
        wanted = np.ascontiguousarray(rows, np.int64)
        laid, target = self._lay_out(question), _standing(into)
        self._library.tangram_stand(
            *(each.address for each in laid), wanted.ctypes.data, len(wanted), ctypes.addressof(target)
        )

    def scores(self, question: Question, lasting: Lasting, load_value: FloatArray) -> FloatArray:
        """Return the score of every node for an ask of one device, 0 where it does not fit."""
        score = np.empty(len(question.fleet), np.float32)
        self._add_passing(question, lasting, load_value, score=score)
        return score

    def values(self, question: Question, lasting: Lasting, load_value: FloatArray) -> FloatArray:
        """Return the value of every device; where the ask does not fit it means nothing."""
        value = np.empty(question.fleet.kind.shape, np.float32)
        self._add_passing(question, lasting, load_value, value=value)
        return value

    def write_load(self, fleet: Fleet, rows: npt.NDArray[np.intp], into: FloatArray) -> None:
        """Write the value of the load of every device of these rows."""
        wanted = np.ascontiguousarray(rows, np.int64)
        columns = [_column(getattr(fleet, name)) for name in LOAD_FIELDS]
        words = LoadWords(
            fleet.width, len(fleet), *(word for column, _ in columns for word in (column.data, column.stride))
        )
        self._library.tangram_load(
            ctypes.addressof(words), wanted.ctypes.data, len(wanted), UNKNOWN_LOAD, FOREIGN_PART, into.ctypes.data
        )

    def levels(
        self, score: FloatArray, order: npt.NDArray[np.uint32], rows: npt.NDArray[np.intp], top: int
    ) -> IntArray:
        """Return kube-scheduler's levels of these rows, on all of which a pod fits."""
        score, order = np.ascontiguousarray(score, np.float32), np.ascontiguousarray(order, np.uint32)
        wanted, levels = np.ascontiguousarray(rows, np.int64), np.empty(len(rows), np.int32)
        self._library.tangram_levels(
            score.ctypes.data, order.ctypes.data, wanted.ctypes.data, len(wanted), top, levels.ctypes.data
        )
        return levels

    def _add_passing(
        self,
        question: Question,
        lasting: Lasting,
        load_value: FloatArray,
        *,
        value: FloatArray | None = None,
        score: FloatArray | None = None,
    ) -> None:
        laid, source = self._lay_out(question), _standing(lasting)
        column, held = _column(load_value)
        scratch = np.empty(4 * len(question.fleet), np.float32)
        self._library.tangram_scores(
            *(each.address for each in laid),
            ctypes.addressof(source),
            column,
            None if value is None else value.ctypes.data,
            None if score is None else score.ctypes.data,
            scratch.ctypes.data,
        )
        del held  # The column points into it.

    def _lay_out(self, question: Question) -> tuple[_LaidFleet, _Laid, _Laid]:
        """Return the three structs. Threads may come here at once, so what was kept is read once."""
        outlook = self._outlook
        if outlook is None or outlook[0] is not question.outlook:
            outlook = self._outlook = question.outlook, _outlook(question.outlook)
        return self._fleet_of(question.fleet), self._ask_of(question), outlook[1]

    def _fleet_of(self, fleet: Fleet) -> _LaidFleet:
        """Return the layout of a fleet; a few rows are laid out apart, so that the whole is not forgotten for them."""
        if len(fleet) <= _FEW:
            part = self._part
            if part is None or part[0] is not fleet:
                part = self._part = fleet, _fleet(fleet, None)
            return part[1]
        known = self._fleet
        if known is None or known[0] is not fleet:
            known = self._fleet = fleet, _fleet(fleet, known[1] if known is not None else None)
        return known[1]

    def _ask_of(self, question: Question) -> _Laid:
        key, kinds = (question.request, question.weights), question.fleet.kinds
        known = self._asks.get(key)
        if known is not None and known[0] == kinds:
            return known[1]
        if len(self._asks) >= _ASKS_KEPT:
            self._asks.clear()
        laid = _ask(question.request, question.weights, kinds)
        self._asks[key] = kinds, laid
        return laid


@lru_cache
def _are_known(weights: Weights) -> bool:
    """Return whether all scorers are known, in the order in which they are added up here."""
    return all(name in SCORERS for name, _ in weights) and list(weights) == sorted(weights)


def _column(array: Array) -> tuple[Column, Array]:
    if array.strides[-1] != array.itemsize:
        array = np.ascontiguousarray(array)
    return Column(array.ctypes.data, array.strides[0]), array


def _fleet(fleet: Fleet, before: _LaidFleet | None) -> _LaidFleet:
    """Lay a fleet out; the words of columns that another layout was made of are taken from there."""
    columns = _columns_of(fleet)
    known: tuple[Array | None, ...] = before.columns if before is not None else (None,) * len(columns)
    words = [*before.words] if before is not None else [0] * FLEET_WORDS
    held = [*before.held] if before is not None else [*columns]
    words[0] = fleet.width
    for at, column in enumerate(columns):
        if known[at] is column:
            continue
        held[at] = array = column if column.strides[-1] == column.itemsize else np.ascontiguousarray(column)
        if at < len(DEVICE_FIELDS):
            words[1 + 2 * at : 3 + 2 * at] = array.ctypes.data, array.strides[0]
        else:
            words[1 + len(DEVICE_FIELDS) + at] = array.ctypes.data
    return _LaidFleet(FleetWords(*words), columns, words, held)


def _ask(request: PodRequest, weights: Weights, kinds: tuple[DeviceKind, ...]) -> _Laid:
    ask, named = request.containers[0], dict(weights)
    reasons = (*_STEP_REASONS, *shortage_reasons(request, ask), *_NODE_REASONS)
    matches = [*(request.conditions.matches(kind) for kind in kinds), False]
    arrays: dict[str, Array] = {
        "kind_matches": np.array(matches, np.uint8),
        "mode_matches": mode_matches(request).astype(np.uint8),
        "takes_all": takes_whole_device(request, ask).astype(np.uint8),
        "preference": weight_by_kind(request, kinds),
        "sufficiency": value_by_kind(kinds),
        "reasons": np.array([reason_number(reason) for reason in reasons], np.uint8),
        "scorers": np.array([SCORERS.index(name) for name, _ in weights], np.int64),
        "weights": np.array([weight for _, weight in weights], np.float32),
    }
    numbers = {
        "count": ask.count,
        "memory_mib": _amount(ask.memory_mib),
        "compute_milli": _amount(ask.compute_milli),
        "cpu_milli": request.cpu_milli,
        "is_whole": ask.is_whole,
        "kinds": len(kinds),
        "scorers_count": len(weights),
        "has_scarcity": "scarcity" in named,
        "load_weight": named.get("load", 0.0),
        "scarcity_weight": named.get("scarcity", 0.0),
    }
    return _laid(AskStruct(**numbers), arrays)


def _amount(amount: int | None) -> int:
    return -1 if amount is None else min(amount, _MOST)


def _outlook(outlook: Outlook) -> _Laid:
    demand, prospect = outlook.demand, outlook.prospect
    if outlook.unusable is None or demand is None:
        return _laid(OutlookStruct(), {})
    slots = prospect.slots if prospect is not None else ()
    numbers = {
        "known": len(outlook.unusable) - 1,
        "levels": len(outlook.cpu_levels),
        "knows_demand": 1,
        "several_count": len(outlook.several),
        "cpu_per_device": demand.cpu_per_device,
        "cpu_noise": demand.cpu_variance * CPU_NOISE,
        "cpu_least": max(demand.cpu_per_device, 1),
        "scale": np.sqrt(3) / np.pi,
        "fragmentation": FRAGMENTATION,
        "cpu_shortage": CPU_SHORTAGE,
        "worth_weight": WORTH,
        "kinds_weight": KINDS,
        "step_milli": STEP_MILLI,
        "range_milli": RANGE_MILLI,
        "knows_prospect": prospect is not None,
        "slots_count": len(slots),
    }
    arrays: dict[str, Array] = {
        "cpu_levels": np.asarray(outlook.cpu_levels, np.int64),
        "unusable": outlook.unusable,
        "several": np.array(list(outlook.several), np.int64),
        "several_weights": _stacked(list(outlook.several.values()), np.float32),
        "worth": np.asarray(demand.worth, np.float32),
        "scarce": prospect.short if prospect is not None else np.zeros(0, np.float32),
        "slot_counts": np.array([shape.count for shape, _ in slots], np.int64),
        "slot_cpu": np.array([shape.cpu_milli for shape, _ in slots], np.int64),
        "slot_price": np.array([SLOTS * (odds * shape.count * WHOLE_MILLI) for shape, odds in slots], np.float32),
        "slot_kinds": _stacked([shape.kinds for shape, _ in slots], np.uint8),
    }
    return _laid(OutlookStruct(**numbers), arrays)


def _stacked(tables: Sequence[Array], dtype: type[np.generic]) -> Array:
    return np.stack(tables).astype(dtype) if tables else np.zeros(0, dtype)


def _laid(struct: ctypes.Structure, arrays: dict[str, Array]) -> _Laid:
    held = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    for name, array in held.items():
        setattr(struct, name, array.ctypes.data)
    return _Laid(struct, tuple(held.values()))


def _standing(columns: Lasting) -> StandingStruct:
    arrays = (columns.code, columns.reason, columns.fits, columns.value, columns.rest_milli, columns.left_milli)
    return StandingStruct(*(array.ctypes.data for array in arrays), len(columns.code))
