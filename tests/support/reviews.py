"""Admission as the API server does it: a review asked, a JSON Patch applied."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from extender.admission import Door
from extender.admission_review import Opinion, ReviewedPod, encode_answer
from extender.admission_settings import AdmissionSettings
from extender.allocation import VISIBLE_DEVICES, device_key
from scoring.fleet import Fleet
from scoring.registry import build_policies
from tests.support.fleets import fleet as fleet_of
from tests.support.pods import PREFIX

VOID = {"name": VISIBLE_DEVICES, "value": "void"}

Json = dict[str, Any]


def raw_pod(
    *containers: Json,
    init: tuple[Json, ...] = (),
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> Json:
    """Return a pod as the API server sends it to a webhook: defaults filled in, nothing of the status."""
    metadata: Json = {"generateName": "trainer-", "creationTimestamp": None}
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    if labels is not None:
        metadata["labels"] = dict(labels)
    body: Json = {"schedulerName": "default-scheduler", "containers": list(containers), **spec}
    if init:
        body["initContainers"] = list(init)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}


def raw_container(name: str = "main", *, env: list[Json] | None = None, **rows: str) -> Json:
    """Return a container with limits of ours (``gpu_memory="8Gi"``), requests as the API server defaults them."""
    built: Json = {"name": name, "image": "example.com/app"}
    if rows:
        limits = {f"tangram.dev/{row.replace('_', '-')}": amount for row, amount in rows.items()}
        built["resources"] = {"limits": limits, "requests": dict(limits)}
    if env is not None:
        built["env"] = env
    return built


def review(pod: Json, *, namespace: str = "ml", **request: Any) -> Json:
    """Return the AdmissionReview of a pod's creation."""
    about = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": {"username": "author"},
        "object": pod,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": about | request}


def patched(pod: Json, response: Json) -> Json:
    """Return the pod as the API server has it after an allowing response."""
    assert response["allowed"], response
    changed = copy.deepcopy(pod)
    if "patch" in response:
        assert response["patchType"] == "JSONPatch"
        for step in json.loads(base64.b64decode(response["patch"])):
            _add(changed, step)
    return changed


def _add(document: Json, step: Json) -> None:
    assert step["op"] == "add"
    *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
    target: Any = document
    for part in parents:
        target = target[int(part)] if isinstance(target, list) else target[part]
    if isinstance(target, list):
        assert last == "-", "only appended to"
        target.append(copy.deepcopy(step["value"]))
    else:
        target[last] = copy.deepcopy(step["value"])


def shown(name: str, variable: str = VISIBLE_DEVICES, key: str | None = None) -> Json:
    """Return a variable that shows the devices of a container, or another key of ours."""
    path = f"metadata.annotations['{PREFIX}{key or device_key(name)}']"
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def a_door(fleet: Fleet | None = None, **rules: Any) -> Door:
    """Return a door with the built-in policies and one of the configuration, ``night``."""
    known = fleet if fleet is not None else fleet_of()
    return Door(AdmissionSettings(**rules), build_policies({"night": {"packing": 1.0}}), lambda: known, PREFIX)


def decoded(pod: Json) -> ReviewedPod:
    """Return a pod as the door sees it."""
    return msgspec.json.decode(json.dumps(pod).encode(), type=ReviewedPod)


def answered(opinion: Opinion) -> Json:
    """Return the response that the API server gets."""
    response: Json = json.loads(encode_answer("uid", opinion))["response"]
    return response


def mutated(pod: Json, at: Door | None = None, namespace: str = "ml") -> Json:
    """Return the pod after the mutating webhook."""
    return patched(pod, answered((at or a_door()).mutate(decoded(pod), namespace)))


def refusal(pod: Json, at: Door | None = None) -> str:
    """Return why both webhooks refuse a pod, for the same reasons."""
    door = at or a_door()
    opinion = door.mutate(decoded(pod), "ml")
    assert opinion.problems
    assert door.validate(decoded(pod)).problems == opinion.problems
    message: str = answered(opinion)["status"]["message"]
    return message
