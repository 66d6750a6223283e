"""What a pod's annotations ask of its devices: conditions, kinds of share, closeness, preferences, policy, workload.

Only pods that ask for GPUs are read: an annotation of ours on any other pod has no effect and is never a reason to
refuse it. A named workload stands for rows of other annotations; rows that the author wrote win.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from extender.problems import attempt
from extender.workloads import WORKLOADS
from scoring.annotations import list_parts
from scoring.conditions import ANY_DEVICE, Conditions, parse_all, parse_preferences, unknown_keys
from scoring.errors import InvalidRequest
from scoring.request import DEFAULT_SHARING, SharingMode, Topology

if TYPE_CHECKING:
    from collections.abc import Mapping

GPU_CONTAINER = "gpu-container"
GPU_POLICY = "gpu-policy"
GPU_PREFER = "gpu-prefer"
GPU_SHARING = "gpu-sharing"
GPU_TOPOLOGY = "gpu-topology"
MIG_PROFILE = "mig-profile"
WORKLOAD = "workload"

_MAX_NAME = 63
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_E = TypeVar("_E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What annotations ask, field by field as in ``scoring.request.PodRequest``."""

    conditions: Conditions = ANY_DEVICE
    sharing: frozenset[SharingMode] = DEFAULT_SHARING
    topology: Topology = Topology.ANY
    preferences: tuple[tuple[str, float], ...] = ()
    policy: str | None = None
    workload: str | None = None


def read_wishes(annotations: Mapping[str, str], prefix: str, problems: list[InvalidRequest]) -> Wishes:
    """Return what the annotations under ``prefix`` ask; every problem is appended, and what it concerns left out."""
    problems.extend(unknown_keys(annotations, prefix))
    workload = attempt(problems, None, lambda: _closed(annotations, prefix, WORKLOAD, tuple(WORKLOADS)))
    rows = with_workload(annotations, workload, prefix)
    conditions, unmet = parse_all(rows, prefix)
    problems.extend(problem.with_traceback(None) for problem in unmet)
    return Wishes(
        conditions=conditions,
        sharing=attempt(problems, DEFAULT_SHARING, lambda: _sharing(rows, prefix)),
        topology=attempt(problems, Topology.ANY, lambda: _topology(rows, prefix)),
        preferences=attempt(problems, (), lambda: _preferences(rows, prefix)),
        policy=attempt(problems, None, lambda: _policy(rows, prefix)),
        workload=workload,
    )


def with_workload(annotations: Mapping[str, str], workload: str | None, prefix: str) -> Mapping[str, str]:
    """Return the annotations completed by the rows of the named workload."""
    if workload is None:
        return annotations
    return {prefix + key: text for key, text in WORKLOADS[workload].items()} | dict(annotations)


def _closed(rows: Mapping[str, str], prefix: str, key: str, valid: tuple[str, ...]) -> str | None:
    """Return a value from a closed set, None where the annotation is absent or blank."""
    text = rows.get(prefix + key, "").strip()
    if text and text not in valid:
        raise InvalidRequest(prefix + key, text[:_MAX_NAME], f"one of {', '.join(valid)}")
    return text or None


def _sharing(rows: Mapping[str, str], prefix: str) -> frozenset[SharingMode]:
    field = prefix + GPU_SHARING
    modes = frozenset(_member(SharingMode, part, field) for part in list_parts(field, rows.get(field, "")))
    if not rows.get(prefix + MIG_PROFILE, "").strip():
        return modes or DEFAULT_SHARING
    if modes and SharingMode.MIG not in modes:
        raise InvalidRequest(field, rows[field][:_MAX_NAME], f"mig, or no such row, beside {prefix}{MIG_PROFILE}")
    return frozenset({SharingMode.MIG})


def _topology(rows: Mapping[str, str], prefix: str) -> Topology:
    return Topology(_closed(rows, prefix, GPU_TOPOLOGY, tuple(Topology)) or Topology.ANY)


def _preferences(rows: Mapping[str, str], prefix: str) -> tuple[tuple[str, float], ...]:
    text = rows.get(prefix + GPU_PREFER)
    return () if text is None else tuple(parse_preferences(text, prefix + GPU_PREFER))


def _policy(rows: Mapping[str, str], prefix: str) -> str | None:
    """Return the policy's name; whether it is configured is for whoever knows the configuration to say."""
    text = rows.get(prefix + GPU_POLICY, "").strip()
    if text and (len(text) > _MAX_NAME or not _NAME.fullmatch(text)):
        valid = "a policy's name: lower-case letters, digits and dashes, at most 63"
        raise InvalidRequest(prefix + GPU_POLICY, text[:_MAX_NAME], valid)
    return text or None


def _member(kind: type[_E], text: str, field: str) -> _E:
    try:
        return kind(text.lower())
    except ValueError as error:
        raise InvalidRequest(field, text[:_MAX_NAME], f"one or more of {', '.join(kind)}") from error
