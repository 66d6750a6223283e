"""Kubernetes quantities as exact numbers, and what an amount of GPU memory means.

The grammar is that of ``apimachinery/pkg/api/resource/quantity.go``: a decimal number with a binary suffix (``Ki``,
``Mi`` ...), a decimal one (``n u m k M G T P E``) or an exponent. Fractions keep every digit, so sums are exact; texts
repeat a great deal, so each is parsed once and remembered in a bounded cache.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache

from scoring.errors import InvalidRequest

MAX_QUANTITY = 2**63 - 1
"""The largest amount that Kubernetes holds."""

MAX_MEMORY_MIB = 16_777_216
"""No node holds more GPU memory (16 TiB): a larger decimal number is a count of bytes (design section 2)."""

MIB = 2**20

MOST_COUNTED = 10**15
"""What one pod or node can have of CPU (1/1000 core) or host memory (MiB) in the books: sums of it fit a column."""

_MAX_LENGTH = 64
_MAX_EXPONENT = 30
_NUMBER = re.compile(r"([+-]?)(\d+(?:\.\d*)?|\.\d+)(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,3}))?", re.ASCII)
_DECIMAL_POWER = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_POWER = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


class MemoryUnit(StrEnum):
    """How the number in an amount of memory was read."""

    MIB = "MiB"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class MemoryAmount:
    """An amount of GPU memory: the text as found, the MiB understood (0 to 16,777,216), and what its number counted."""

    found: str
    mib: int
    unit: MemoryUnit

    @property
    def needs_rewrite(self) -> bool:
        """Return whether the text means bytes, which Kubernetes would add up as if they were MiB."""
        return self.unit is MemoryUnit.BYTES

    @property
    def sentence(self) -> str:
        """Return in words what was understood."""
        return f"{self.found} was read as {self.unit.value} and means {self.mib} MiB"


def parse_quantity(text: str, field: str) -> Fraction:
    """Return the exact value of a quantity from 0 to 2^63 - 1; raise InvalidRequest that names ``field`` otherwise."""
    try:
        value = _value(text)
    except ValueError:
        value = None
    if value is None or not 0 <= value <= MAX_QUANTITY:
        raise InvalidRequest(field, _shown(text), "a Kubernetes quantity from 0 to 9223372036854775807")
    return value


def whole_number(text: str, field: str) -> int:
    """Return a quantity that must be an integer, 0 or more; raise InvalidRequest otherwise."""
    value = parse_quantity(text, field)
    if value.denominator != 1:
        raise InvalidRequest(field, _shown(text), "a whole number")
    return value.numerator


def memory_amount(text: str, field: str) -> MemoryAmount:
    """Read an amount of GPU memory by the rule of design section 2.

    A decimal number is a count of MiB, whatever its suffix, because the API server itself writes 5000 as ``5k``; a
    binary suffix makes it bytes, and so does a decimal value above 16,777,216. Bytes are rounded down to whole MiB.
    Raises InvalidRequest for what is no quantity, not whole, more than 16,777,216 MiB, or some bytes short of 1 MiB.
    """
    value = parse_quantity(text, field)
    if text.endswith("i") or value > MAX_MEMORY_MIB:
        mib = math.floor(value / MIB)
        if mib > MAX_MEMORY_MIB or (mib == 0 and value > 0):
            raise InvalidRequest(field, _shown(text), f"1Mi to {MAX_MEMORY_MIB}Mi")
        return MemoryAmount(text, mib, MemoryUnit.BYTES)
    return MemoryAmount(text, whole_number(text, field), MemoryUnit.MIB)


def ceil_milli(value: Fraction) -> int:
    """Return thousandths, rounded up as Kubernetes does for CPU; beyond ``MOST_COUNTED`` that."""
    return min(math.ceil(value * 1000), MOST_COUNTED)


def ceil_mib(value: Fraction) -> int:
    """Return MiB of a number of bytes, rounded up: what a pod takes is not understated up to ``MOST_COUNTED``."""
    return min(math.ceil(value / MIB), MOST_COUNTED)


@lru_cache(maxsize=4096)
def _value(text: str) -> Fraction:
    found = _NUMBER.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if found is None:
        msg = "not a quantity"
        raise ValueError(msg)
    sign, digits, suffix, exponent = found.groups()
    value = Fraction(digits) * _factor(suffix, exponent)
    return -value if sign == "-" else value


def _factor(suffix: str | None, exponent: str | None) -> Fraction:
    if suffix in _BINARY_POWER:
        return Fraction(2 ** _BINARY_POWER[suffix])
    power = int(exponent) if exponent else _DECIMAL_POWER.get(suffix or "", 0)
    if abs(power) > _MAX_EXPONENT:
        msg = "exponent out of range"
        raise ValueError(msg)
    return Fraction(10) ** power


def _shown(text: str) -> str:
    """Return a text cut to what an error message may carry."""
    return text if len(text) <= _MAX_LENGTH else text[:_MAX_LENGTH] + "..."
