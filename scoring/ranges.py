"""Comparisons of versions and sizes, kept as the set of values that meet them.

``>=8.0,<10`` becomes the half-open interval from 8.0 to 10, ``7.5,9.0`` two intervals, ``!8.6`` everything around 8.6.
The set is normal (sorted, disjoint, not touching), so conditions that mean the same are equal. A value is a tuple of
numbers without trailing zeros, for which Python's order of tuples is the order of versions: 12 = 12.0 < 12.0.1.

A version that is written short stands for all that begin with it: ``535`` is the whole 535 branch, ``>535`` begins
after it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from scoring.annotations import list_parts
from scoring.errors import InvalidCondition

Point = tuple[int, ...]
Interval = tuple[Point, Point | None]
"""From the first point on, up to but without the second; None has no end."""

MIB_PER_GIB = 1024
SIZE_KEPT_PERCENT = 92
"""A card counts as one of X when NVML reports between this share of X and X.

ECC and the driver keep up to 8 % of the memory that is printed on a card: T4, 16 GB, 15,109 to 15,360 MiB; K80, 12 GB,
11,441 MiB; H100, 80 GB, 81,559 MiB. The nearest sizes that are sold differ by more (11 and 12 GB).
"""

_PART = re.compile(r"(>=|<=|>|<|==|=|!=|!)?\s*(.*)", re.DOTALL)
_SIZE = re.compile(r"([0-9]{1,9})\s*(?:([TGM])(?:i?B?)?)?", re.IGNORECASE)
_UNIT_MIB = {"M": 1, "G": MIB_PER_GIB, "T": MIB_PER_GIB * MIB_PER_GIB}


@dataclass(frozen=True, slots=True)
class Scale:
    """One kind of value, how it is read and how it is written.

    ``valid``   what may be written, for the author of something else
    ``read``    text -> the first point that the value stands for and the first one after it; None if it is no value
    ``bound``   a point and whether it is the lower bound -> comparison, such as ``>=8.0``
    ``single``  two points -> the only value that could stand for what lies between them
    """

    valid: str
    read: Callable[[str], tuple[Point, Point] | None]
    bound: Callable[[Point, str], str]
    single: Callable[[Point, Point], str]


def parse_ranges(field: str, text: str, scale: Scale) -> tuple[Interval, ...] | None:
    """Return the values that meet a list of comparisons, None where the list is empty.

    Comparisons and exclusions (``!x``) must all hold; values without an operator are alternatives. Raises
    InvalidCondition for a value that cannot be read, alternatives mixed with comparisons, or a list nothing can meet.
    """
    parts = list_parts(field, text)
    if not parts:
        return None
    required: list[tuple[Interval, ...]] = []
    alternatives: list[Interval] = []
    compared = False
    for part in parts:
        operator, first, after = _read(field, part, scale)
        if operator in {"", "=", "=="}:
            alternatives.append((first, after))
        else:
            compared = compared or operator not in {"!", "!="}
            required.append(_meeting(operator, first, after))
    if alternatives and compared:
        raise InvalidCondition(
            field, text, "either comparisons, which must all hold, or single values, of which one must"
        )
    met = _union(alternatives) if alternatives else (((), None),)
    for intervals in required:
        met = _intersection(met, intervals)
    if not met:
        raise InvalidCondition(field, text, "comparisons that some value meets")
    return met


def _read(field: str, part: str, scale: Scale) -> tuple[str, Point, Point]:
    found = _PART.fullmatch(part)
    points = scale.read(found[2]) if found else None
    if found is None or points is None:
        raise InvalidCondition(field, part, scale.valid)
    return found[1] or "", points[0], points[1]


def _meeting(operator: str, first: Point, after: Point) -> tuple[Interval, ...]:
    match operator:
        case ">=":
            return ((first, None),)
        case ">":
            return ((after, None),)
        case "<":
            return _union([((), first)])
        case "<=":
            return (((), after),)
        case _:
            return _union([((), first), (after, None)])


def _union(intervals: list[Interval]) -> tuple[Interval, ...]:
    met: list[Interval] = []
    for low, high in sorted(intervals, key=lambda interval: interval[0]):
        if high is not None and high <= low:
            continue
        if met and (met[-1][1] is None or low <= met[-1][1]):
            last_low, last_high = met[-1]
            met[-1] = (last_low, None if last_high is None or high is None else max(last_high, high))
        else:
            met.append((low, high))
    return tuple(met)


def _intersection(left: tuple[Interval, ...], right: tuple[Interval, ...]) -> tuple[Interval, ...]:
    return _union([(max(a, c), _sooner(b, d)) for a, b in left for c, d in right])


def _sooner(left: Point | None, right: Point | None) -> Point | None:
    if left is None or right is None:
        return right if left is None else left
    return min(left, right)


def within(value: Point, ranges: tuple[Interval, ...]) -> bool:
    """Return whether a value lies in the ranges; a value that is unknown (empty, or zeros only) never does."""
    point = _stripped(value)
    return bool(point) and any(low <= point and (high is None or point < high) for low, high in ranges)


def describe_ranges(ranges: tuple[Interval, ...], scale: Scale) -> str:
    """Return the ranges in the words of the grammar, several intervals joined by ``or``."""
    return " or ".join(_describe(low, high, scale) for low, high in ranges)


def _describe(low: Point, high: Point | None, scale: Scale) -> str:
    if high is None:
        return scale.bound(low, ">=")
    single = scale.single(low, high)
    if scale.read(single) == (low, high):
        return single
    return ",".join([scale.bound(low, ">=")] * bool(low) + [scale.bound(high, "<")])


def _stripped(point: Point) -> Point:
    while point and point[-1] == 0:
        point = point[:-1]
    return point


def version_scale(valid: str, *, most_parts: int, largest_major: int, least_parts: int = 1) -> Scale:
    """Return the scale of dotted versions.

    ``most_parts``    parts that may be written        ``least_parts``  parts that are shown
    ``largest_major`` refuses numbers that are something else, such as 80 for compute capability 8.0
    """

    def read(text: str) -> tuple[Point, Point] | None:
        if not re.fullmatch(r"[0-9]{1,6}(?:\.[0-9]{1,6})*", text):
            return None
        numbers = tuple(int(part) for part in text.split("."))
        if len(numbers) > most_parts or numbers[0] > largest_major:
            return None
        return _stripped(numbers), (*numbers[:-1], numbers[-1] + 1)

    def bound(point: Point, operator: str) -> str:
        return operator + ".".join(str(part) for part in (*point, *(0,) * (least_parts - len(point))))

    def single(low: Point, high: Point) -> str:
        return ".".join(str(part) for part in (*low, *(0,) * (len(high) - len(low))))

    return Scale(valid, read, bound, single)


def _read_size(text: str) -> tuple[Point, Point] | None:
    found = _SIZE.fullmatch(text)
    if found is None:
        return None
    mib = int(found[1]) * _UNIT_MIB[(found[2] or "M").upper()]
    if mib < MIB_PER_GIB and found[2] is None:
        return None
    return _stripped((_kept(mib),)), (mib + 1,)


def _kept(mib: int) -> int:
    return -(-mib * SIZE_KEPT_PERCENT // 100)


def _size_bound(point: Point, operator: str) -> str:
    """Return the comparison whose bound the point is, in whole GiB where one is.

    ``>=X`` and ``<X`` bound at the least size that counts as X, ``>X`` and ``<=X`` one MiB above X.
    """
    least = point[0] if point else 0
    nearest = least * 100 // SIZE_KEPT_PERCENT
    for mib in (nearest, nearest - 1):
        if mib % MIB_PER_GIB == 0 and _kept(mib) == least:
            return f"{operator}{_size_text(mib)}"
    if (least - 1) % MIB_PER_GIB == 0:
        return f"{'>' if operator == '>=' else '<='}{_size_text(least - 1)}"
    return f"{operator}{_size_text(nearest)}"


def _size_single(_: Point, high: Point) -> str:
    return _size_text(high[0] - 1)


def _size_text(mib: int) -> str:
    return f"{mib}Mi" if mib % MIB_PER_GIB else f"{mib // MIB_PER_GIB}Gi"


SIZES = Scale("a size such as 40Gi or 40960Mi, alone or after >=, >, <=, < or !", _read_size, _size_bound, _size_single)
