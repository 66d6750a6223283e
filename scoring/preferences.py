"""What a pod's author would rather have, without insisting: ``gpu-prefer``, such as ``l4=3,t4=1``."""

from __future__ import annotations

import math

from scoring.annotations import DEFAULT_PREFIX, list_parts
from scoring.architecture import NAMED, Architecture
from scoring.catalog import DeviceKind, find_product, is_glob, is_product, product_pattern
from scoring.errors import InvalidCondition

Preferences = tuple[tuple[str, float], ...]

_VALID = "product or architecture = weight, weight a number above 0, such as l4=3,t4=1"


def parse_preferences(text: str, field: str = DEFAULT_PREFIX + "gpu-prefer") -> Preferences:
    """Return (product or architecture pattern, weight) pairs in a normal order; a name alone has weight 1.

    Raises InvalidCondition for a weight that is no number above 0, a name without letters, or a name that comes twice.
    """
    weights: dict[str, float] = {}
    for part in list_parts(field, text):
        name, given, weight = part.partition("=")
        architecture = Architecture.parse(name)
        pattern = architecture.label if architecture else product_pattern(name)
        if not pattern or pattern in weights:
            raise InvalidCondition(field, part, f"{_VALID}; each name once")
        weights[pattern] = _weight(field, part, weight) if given else 1.0
    return tuple(sorted(weights.items()))


def _weight(field: str, part: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not (math.isfinite(weight) and weight > 0):
        raise InvalidCondition(field, part, _VALID)
    return weight


def preference_weight(preferences: Preferences, kind: DeviceKind) -> float:
    """Return the greatest weight that names a device, over the greatest of all weights; 0 where none names it."""
    named = [weight for pattern, weight in preferences if _names(pattern, kind)]
    return max(named) / max(weight for _, weight in preferences) if named else 0.0


def unknown_preferences(preferences: Preferences) -> tuple[str, ...]:
    """Return the names that are no architecture, no known product and no glob, so that an author can be warned."""
    names = {architecture.label for architecture in NAMED}
    return tuple(name for name, _ in preferences if name not in names and not is_glob(name) and not find_product(name))


def _names(pattern: str, kind: DeviceKind) -> bool:
    return pattern == kind.architecture.label or is_product(pattern, kind)
