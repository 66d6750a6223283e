"""Typed conditions on devices: read from a pod's annotations, kept in a normal form, met or not by a kind of device.

Everything is exact and per device. Two lists that mean the same give equal ``Conditions``. What a device does not
report (driver, size, capability, generation) meets no condition on it. The grammar is in ``docs/conditions.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace

from scoring.annotations import ANNOTATION_KEYS, CONDITION_KEYS, DEFAULT_PREFIX, unknown_keys
from scoring.architecture import NAMED, Architecture
from scoring.catalog import DeviceKind, find_product, is_glob, is_product, nearest_products
from scoring.condition_lists import (
    parse_architectures,
    parse_features,
    parse_mig_profiles,
    parse_products,
    parse_uuids,
)
from scoring.errors import InvalidCondition
from scoring.preferences import parse_preferences, preference_weight, unknown_preferences
from scoring.products import name_key
from scoring.ranges import SIZES, Interval, describe_ranges, parse_ranges, version_scale, within

__all__ = [
    "ANNOTATION_KEYS",
    "ANY_DEVICE",
    "CONDITION_KEYS",
    "DEFAULT_PREFIX",
    "Conditions",
    "parse_all",
    "parse_conditions",
    "parse_preferences",
    "preference_weight",
    "product_problems",
    "unknown_keys",
    "unknown_preferences",
]

_COMPARED = ", alone or after >=, >, <=, < or !"
CAPABILITIES = version_scale(
    f"a compute capability such as 8.6{_COMPARED}", most_parts=2, largest_major=29, least_parts=2
)
DRIVERS = version_scale(f"a driver version such as 535 or 535.104.05{_COMPARED}", most_parts=4, largest_major=9999)
CUDA_VERSIONS = version_scale(f"a CUDA version such as 12.4{_COMPARED}", most_parts=2, largest_major=99, least_parts=2)


_MOST_ADVISED = 16


@dataclass(frozen=True, slots=True)
class Conditions:
    """Every condition of one pod, in normal form. None, and an empty exclusion, ask for nothing.

    ``product_include``, ``product_exclude``  patterns as ``catalog.product_pattern`` makes them
    ``features``, ``features_exclude``        all of the first must be there, none of the second
    """

    architectures: frozenset[Architecture] | None = None
    product_include: frozenset[str] | None = None
    product_exclude: frozenset[str] = frozenset()
    compute_capability: tuple[Interval, ...] | None = None
    total_memory: tuple[Interval, ...] | None = None
    driver: tuple[Interval, ...] | None = None
    cuda: tuple[Interval, ...] | None = None
    features: frozenset[str] = frozenset()
    features_exclude: frozenset[str] = frozenset()
    uuid_include: frozenset[str] | None = None
    uuid_exclude: frozenset[str] = frozenset()
    mig_include: frozenset[str] | None = None
    mig_exclude: frozenset[str] = frozenset()

    @property
    def is_any(self) -> bool:
        """Return whether every device will do."""
        return all(getattr(self, field.name) == field.default for field in fields(self))

    @property
    def names_devices(self) -> bool:
        """Return whether single devices are named, in or out."""
        return self.uuid_include is not None or bool(self.uuid_exclude)

    def matches(self, kind: DeviceKind) -> bool:
        """Return whether devices of a kind meet every condition but those on UUIDs."""
        return not self.failing(kind)

    def failing(self, kind: DeviceKind) -> tuple[str, ...]:
        """Return the conditions that a kind does not meet, as annotation names without prefix; UUIDs are left out."""
        return tuple(key for key, (is_met, _) in _CHECKS.items() if not is_met(self, kind))

    def includes_uuid(self, uuid: str) -> bool:
        """Return whether the include list has the device, or there is none."""
        return self.uuid_include is None or uuid in self.uuid_include

    def excludes_uuid(self, uuid: str) -> bool:
        """Return whether the exclude list has the device."""
        return uuid in self.uuid_exclude

    def allows_uuid(self, uuid: str) -> bool:
        """Return whether the conditions on UUIDs let the device through; out wins over in."""
        return self.includes_uuid(uuid) and not self.excludes_uuid(uuid)

    def describe(self) -> tuple[tuple[str, str], ...]:
        """Return (annotation name without prefix, normal text) of every condition that is made."""
        texts = [(key, text(self)) for key, (_, text) in _CHECKS.items()]
        texts.append(("gpu-uuid", _list(self.uuid_include, self.uuid_exclude)))
        order = {key: place for place, key in enumerate(CONDITION_KEYS)}
        return tuple(sorted(((key, text) for key, text in texts if text), key=lambda item: order[item[0]]))

    def unknown_products(self, seen: Collection[str] = ()) -> tuple[str, ...]:
        """Return product names, no globs, that neither the catalogue nor ``seen`` knows, sorted.

        ``seen`` are names of products that the fleet has. Such a name is understood, and met by a device that has it.
        """
        known = {name_key(name) for name in seen}
        names = (self.product_include or frozenset()) | self.product_exclude
        return tuple(sorted(n for n in names if not is_glob(n) and n not in known and find_product(n) is None))


ANY_DEVICE = Conditions()


def parse_conditions(annotations: Mapping[str, str], prefix: str = DEFAULT_PREFIX) -> Conditions:
    """Return the conditions that a pod's annotations make; keys that are no condition are not looked at.

    Raises InvalidCondition, with the full key, for the first one that cannot be understood or that nothing can meet.
    """
    conditions, problems = parse_all(annotations, prefix)
    if problems:
        raise problems[0]
    return conditions


def parse_all(
    annotations: Mapping[str, str], prefix: str = DEFAULT_PREFIX
) -> tuple[Conditions, tuple[InvalidCondition, ...]]:
    """Return the conditions that can be understood, and a problem for each one that cannot."""
    conditions = ANY_DEVICE
    problems: list[InvalidCondition] = []
    for key, read in _READERS.items():
        field = prefix + key
        if field not in annotations:
            continue
        try:
            conditions = read(conditions, field, annotations[field])
        except InvalidCondition as problem:
            problems.append(problem)
    return conditions, tuple(problems)


def product_problems(
    conditions: Conditions, prefix: str = DEFAULT_PREFIX, seen: Collection[str] = ()
) -> tuple[InvalidCondition, ...]:
    """Return a problem with the nearest known names for unknown products, for admission to refuse the pod with.

    Only the first ``_MOST_ADVISED`` are told: finding the nearest takes half a millisecond each.
    """
    return tuple(
        InvalidCondition(f"{prefix}gpu-product", name, _product_advice(name))
        for name in conditions.unknown_products(seen)[:_MOST_ADVISED]
    )


def _product_advice(name: str) -> str:
    near = nearest_products(name)
    nearest = f"a known product, nearest are {', '.join(near)}; or" if near else "a known product or"
    return f"{nearest} a glob such as {name}*"


def _read_products(conditions: Conditions, field: str, text: str) -> Conditions:
    include, exclude = parse_products(field, text)
    return replace(conditions, product_include=include, product_exclude=exclude)


def _read_features(conditions: Conditions, field: str, text: str) -> Conditions:
    include, exclude = parse_features(field, text)
    return replace(conditions, features=include, features_exclude=exclude)


def _read_uuids(conditions: Conditions, field: str, text: str) -> Conditions:
    include, exclude = parse_uuids(field, text)
    return replace(conditions, uuid_include=include, uuid_exclude=exclude)


def _read_mig_profiles(conditions: Conditions, field: str, text: str) -> Conditions:
    include, exclude = parse_mig_profiles(field, text)
    return replace(conditions, mig_include=include, mig_exclude=exclude)


_READERS: dict[str, Callable[[Conditions, str, str], Conditions]] = {
    "gpu-architecture": lambda c, field, text: replace(c, architectures=parse_architectures(field, text)),
    "gpu-product": _read_products,
    "gpu-compute-capability": lambda c, f, text: replace(c, compute_capability=parse_ranges(f, text, CAPABILITIES)),
    "gpu-total-memory": lambda c, field, text: replace(c, total_memory=parse_ranges(field, text, SIZES)),
    "gpu-driver": lambda c, field, text: replace(c, driver=parse_ranges(field, text, DRIVERS)),
    "gpu-cuda": lambda c, field, text: replace(c, cuda=parse_ranges(field, text, CUDA_VERSIONS)),
    "gpu-features": _read_features,
    "gpu-uuid": _read_uuids,
    "mig-profile": _read_mig_profiles,
}


def _product_is_met(conditions: Conditions, kind: DeviceKind) -> bool:
    include, exclude = conditions.product_include, conditions.product_exclude
    wanted = include is None or any(is_product(pattern, kind) for pattern in include)
    return wanted and not any(is_product(pattern, kind) for pattern in exclude)


def _mig_is_met(conditions: Conditions, kind: DeviceKind) -> bool:
    wanted = conditions.mig_include is None or kind.mig_profile in conditions.mig_include
    return wanted and kind.mig_profile not in conditions.mig_exclude


def _architectures_text(architectures: frozenset[Architecture] | None) -> str:
    """Return ``>=ampere`` for a generation and all that follow, else the names."""
    if architectures is None:
        return ""
    oldest = min(architectures)
    if Architecture.NEWER not in architectures:
        return ",".join(found.label for found in sorted(architectures))
    missing = [f"!{found.label}" for found in NAMED if found > oldest and found not in architectures]
    return ",".join([f">={oldest.label}", *missing]) if oldest in NAMED else f">{NAMED[-1].label}"


def _list(include: frozenset[str] | None, exclude: frozenset[str]) -> str:
    return ",".join([*sorted(include or ()), *(f"!{name}" for name in sorted(exclude))])


def _product_text(conditions: Conditions) -> str:
    def shown(pattern: str) -> str:
        product = None if is_glob(pattern) else find_product(pattern)
        return product.name if product else pattern

    include, exclude = conditions.product_include, conditions.product_exclude
    return _list(
        None if include is None else frozenset(map(shown, include)),
        frozenset(map(shown, exclude)),
    )


_Check = tuple[Callable[[Conditions, DeviceKind], bool], Callable[[Conditions], str]]

_CHECKS: dict[str, _Check] = {
    "gpu-architecture": (
        lambda c, kind: c.architectures is None or kind.architecture in c.architectures,
        lambda c: _architectures_text(c.architectures),
    ),
    "gpu-product": (_product_is_met, _product_text),
    "gpu-compute-capability": (
        lambda c, kind: c.compute_capability is None or within(kind.compute_capability, c.compute_capability),
        lambda c: describe_ranges(c.compute_capability or (), CAPABILITIES),
    ),
    "gpu-total-memory": (
        lambda c, kind: c.total_memory is None or within((kind.total_mib,), c.total_memory),
        lambda c: describe_ranges(c.total_memory or (), SIZES),
    ),
    "gpu-driver": (
        lambda c, kind: c.driver is None or within(kind.driver, c.driver),
        lambda c: describe_ranges(c.driver or (), DRIVERS),
    ),
    "gpu-cuda": (
        lambda c, kind: c.cuda is None or within(kind.cuda, c.cuda),
        lambda c: describe_ranges(c.cuda or (), CUDA_VERSIONS),
    ),
    "gpu-features": (
        lambda c, kind: c.features <= kind.features and c.features_exclude.isdisjoint(kind.features),
        lambda c: _list(c.features, c.features_exclude),
    ),
    "mig-profile": (_mig_is_met, lambda c: _list(c.mig_include, c.mig_exclude)),
}
