"""Builders of pods as the API server would hand them out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from extender.objects import Pod

PREFIX = "tangram.dev/"


def container(
    name: str = "main",
    rows: Mapping[str, str | int] | None = None,
    *,
    restart_policy: str | None = None,
    devices_key: str | None = None,
    **others: str,
) -> dict[str, Any]:
    """Return a container that asks ``rows`` of ours (``gpu_memory=...`` without prefix) and other resources as limits.

    ``devices_key`` is the annotation, without prefix, that its NVIDIA_VISIBLE_DEVICES shows.
    """
    limits = {PREFIX + row: str(amount) for row, amount in (rows or {}).items()} | others
    built: dict[str, Any] = {"name": name, "resources": {"limits": limits, "requests": dict(limits)}}
    if restart_policy:
        built["restartPolicy"] = restart_policy
    if devices_key:
        built["env"] = [shows("NVIDIA_VISIBLE_DEVICES", PREFIX + devices_key)]
    return built


def shows(variable: str, annotation: str) -> dict[str, Any]:
    """Return a variable that shows an annotation of its pod."""
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}}}


def pod(
    *containers: dict[str, Any],
    init: Sequence[dict[str, Any]] = (),
    annotations: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
    name: str = "trainer",
) -> Pod:
    """Return a pod of these containers; annotation keys are written without our prefix unless they have a slash."""
    marks = {key if "/" in key else PREFIX + key: text for key, text in (annotations or {}).items()}
    raw = {
        "metadata": {"name": name, "namespace": "ml", "uid": f"uid-{name}", "annotations": marks},
        "spec": {"containers": list(containers), "initContainers": list(init), **(spec or {})},
    }
    return msgspec.json.decode(msgspec.json.encode(raw), type=Pod)
