"""Conditions that are lists of names: generations, products, features, UUIDs, MIG profiles.

``!x`` excludes x, and out wins over in. A list in which everything asked for is also excluded is refused: no device
could ever meet it.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

from scoring.annotations import list_parts
from scoring.architecture import NAMED, Architecture
from scoring.catalog import FEATURES, is_glob, parse_mig_profile, product_pattern
from scoring.errors import InvalidCondition

Names = tuple[frozenset[str] | None, frozenset[str]]
"""What is asked for, None where nothing is named, and what is excluded."""

_GENERATIONS = frozenset(NAMED) | {Architecture.NEWER}
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "!": operator.ne,
    "!=": operator.ne,
}
_PART = re.compile(r"(>=|<=|>|<|==|=|!=|!)?\s*(.*)", re.DOTALL)
_PRODUCT = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._*?()+/-]{0,127}|[*?][A-Za-z0-9 ._*?()+/-]{0,127}")
_UUID = re.compile(r"(?:GPU|MIG)-[A-Za-z0-9/._-]{1,120}")


def parse_architectures(field: str, text: str) -> frozenset[Architecture] | None:
    """Return the generations that meet a list, None where it is empty.

    Comparisons and exclusions must all hold; names without an operator are alternatives. Raises InvalidCondition.
    """
    parts = list_parts(field, text)
    if not parts:
        return None
    left = _GENERATIONS
    alternatives: set[Architecture] = set()
    compared = False
    for part in parts:
        sign, architecture = _read_architecture(field, part)
        if sign in _COMPARISONS:
            compared = compared or not sign.startswith("!")
            left = frozenset(found for found in left if _COMPARISONS[sign](found, architecture))
        else:
            alternatives.add(architecture)
    if alternatives and compared:
        raise InvalidCondition(field, text, "either comparisons, which must all hold, or names, of which one must")
    met = left & alternatives if alternatives else left
    if not met:
        raise InvalidCondition(field, text, "a list that some generation meets")
    return met


def _read_architecture(field: str, part: str) -> tuple[str, Architecture]:
    found = _PART.fullmatch(part)
    assert found is not None, "the pattern takes any text"
    architecture = Architecture.parse(found[2])
    if architecture is None:
        names = ", ".join(named.label for named in NAMED)
        raise InvalidCondition(field, part, f"one of {names}, alone or after >=, >, <=, < or !")
    return found[1] or "", architecture


def parse_products(field: str, text: str) -> Names:
    """Return the patterns of a list of product names and globs. Raises InvalidCondition."""

    def read(name: str) -> str | None:
        return product_pattern(name) if _PRODUCT.fullmatch(name) else None

    return _names(field, text, read, "a product's name or a glob such as A100*, alone or after !")


def parse_features(field: str, text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the features that must be there and those that must not. Raises InvalidCondition where they overlap."""

    def read(name: str) -> str | None:
        return name.lower() if name.lower() in FEATURES else None

    include, exclude = _split(field, text, read, f"{', '.join(sorted(FEATURES))}, alone or after !")
    if include & exclude:
        raise InvalidCondition(field, text, "features of which none is also excluded")
    return include, exclude


def parse_uuids(field: str, text: str) -> Names:
    """Return the devices of a list of UUIDs, in and out; what is out is not in. Raises InvalidCondition."""

    def read(name: str) -> str | None:
        uuid = name[:4].upper() + name[4:]
        return uuid if _UUID.fullmatch(uuid) else None

    return _names(field, text, read, "a UUID that begins with GPU- or MIG-, alone or after !")


def parse_mig_profiles(field: str, text: str) -> Names:
    """Return the MIG profiles of a list in the driver's spelling. Raises InvalidCondition."""

    def read(name: str) -> str | None:
        profile = parse_mig_profile(name)
        return profile.name if profile else None

    return _names(field, text, read, "a MIG profile such as 1g.10gb, 1g.10gb+me or 1c.3g.40gb, alone or after !")


def _names(field: str, text: str, read: Callable[[str], str | None], valid: str) -> Names:
    """Return names with out winning over in; beside names that are in, only globs are worth keeping out."""
    include, exclude = _split(field, text, read, valid)
    if not include:
        return None, exclude
    left = include - exclude
    if not left:
        raise InvalidCondition(field, text, "a list that leaves something: what is excluded is out, wherever it stands")
    globs = any(is_glob(name) for name in include)
    return left, exclude if globs else frozenset(name for name in exclude if is_glob(name))


def _split(
    field: str, text: str, read: Callable[[str], str | None], valid: str
) -> tuple[frozenset[str], frozenset[str]]:
    names: tuple[set[str], set[str]] = (set(), set())
    for part in list_parts(field, text):
        is_out = part.startswith("!")
        name = read(part.removeprefix("!").removeprefix("=").strip())
        if name is None:
            raise InvalidCondition(field, part, valid)
        names[is_out].add(name)
    return frozenset(names[0]), frozenset(names[1])
