"""The names of the annotations that a pod's author may write, and the advice on names that are close but wrong."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping

from scoring.errors import InvalidCondition

DEFAULT_PREFIX = "tangram.dev/"

CONDITION_KEYS = (
    "gpu-architecture",
    "gpu-product",
    "gpu-compute-capability",
    "gpu-total-memory",
    "gpu-driver",
    "gpu-cuda",
    "gpu-features",
    "gpu-uuid",
    "mig-profile",
)
"""Annotations that are conditions on each device, in the order in which they are explained."""

ANNOTATION_KEYS = frozenset(CONDITION_KEYS) | {
    "gpu-container",
    "gpu-fraction",
    "gpu-policy",
    "gpu-prefer",
    "gpu-sharing",
    "gpu-topology",
    "workload",
}
"""Every annotation that an author may write, without prefix."""

MAX_PARTS = 256
"""Entries that one annotation may list; a longer list is refused, so that a request stays small."""

MAX_STRANGE = 64
"""Annotations under our prefix that are not ours which one pod may carry: each is compared with every right name."""

_RESOURCES = frozenset({"gpu", "gpu-memory", "gpu-compute"})
_OURS = re.compile(r"allocation|managed|(?:devices|test)-.*")
_NEAR = 0.8
_MOST_COMPARED = 63
_SYNONYMS = dict.fromkeys(("gputype", "gpumodel", "gpuname", "gpusku", "gpucard"), "gpu-product")
"""What other systems call a key of ours, where the spelling alone would lead elsewhere."""


def list_parts(field: str, text: str) -> tuple[str, ...]:
    """Return the entries of a comma-separated value; blanks around them and empty ones have no effect.

    Raises InvalidCondition where there are more than ``MAX_PARTS``.
    """
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    if len(parts) > MAX_PARTS:
        raise InvalidCondition(field, f"{len(parts)} entries", f"at most {MAX_PARTS} entries")
    return parts


def unknown_keys(
    annotations: Mapping[str, str], prefix: str = DEFAULT_PREFIX, allowed: Collection[str] = ANNOTATION_KEYS
) -> tuple[InvalidCondition, ...]:
    """Return a problem for every annotation that its author must have meant for us and that we do not know.

    Those are the keys under ``prefix`` that begin like one of ours (``gpu``, ``mig``) or differ from one by little:
    ``gpu-arch``, ``gpuarch``, ``mig_profile``; ``allowed`` holds the names without prefix that are right. What
    Tangram writes itself (``allocation``, ``devices-<k>``, ``test-<...>``) and names of others are left alone, where
    they are no more than ``MAX_STRANGE``.
    """
    names = sorted(key.removeprefix(prefix) for key in annotations if key.startswith(prefix))
    names = [name for name in names if name not in allowed and not _OURS.fullmatch(name)]
    if len(names) > MAX_STRANGE:
        return (InvalidCondition(f"{prefix}...", f"{len(names)} unknown annotations", f"at most {MAX_STRANGE}"),)
    return tuple(
        InvalidCondition(prefix + name, annotations[prefix + name], _advice(name, prefix, allowed))
        for name in names
        if _is_meant_for_us(name, allowed)
    )


def _is_meant_for_us(name: str, allowed: Collection[str]) -> bool:
    plain = _plain(name)
    known = [_plain(key) for key in allowed]
    return plain.startswith(("gpu", "mig")) or bool(difflib.get_close_matches(plain, known, n=1, cutoff=_NEAR))


def _advice(name: str, prefix: str, allowed: Collection[str]) -> str:
    if name in _RESOURCES:
        return f"{prefix}{name} as a resource limit of a container, not as an annotation"
    known = ", ".join(sorted(allowed))
    by_plain = {_plain(key): key for key in sorted(allowed)}
    by_plain |= {plain: key for plain, key in _SYNONYMS.items() if key in allowed}
    begun = [key for key in by_plain if key.startswith(_plain(name))]
    near = (begun or difflib.get_close_matches(_plain(name), list(by_plain), n=1, cutoff=0.5))[:1]
    nearest = f"the annotation {prefix}{by_plain[near[0]]}; " if near else ""
    return f"{nearest}known annotations are {known}"


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())[:_MOST_COMPARED]
