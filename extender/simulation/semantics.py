"""What the API server does to an object on each write, as functions of values.

Follows Kubernetes 1.36 as far as a scheduler, kubelets and agents can tell: bindings, merge and JSON patches, status
apart from spec, deletion with a grace period. A refusal is an ``ApiRefusal`` with the status the real server answers.
Seen with kube-apiserver 1.36.3, and in the registry code of pods/binding.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from extender.errors import ExtenderError

Object = dict[str, Any]
_TERMINAL = ("Succeeded", "Failed")


class ApiRefusal(ExtenderError):
    """The simulated API server says no; ``status`` is HTTP's, ``reason`` Kubernetes' word for it."""

    code = "ApiRefusal"

    def __init__(self, status: int, reason: str, message: str) -> None:
        self.status = status
        self.reason = reason
        super().__init__(message)


def bound(pod: Object, binding: Object) -> Object:
    """Return the pod after a Binding: node set, annotations merged, nomination cleared, all in one write.

    409 where the UID differs, the pod is being deleted, already has a node, or has scheduling gates.
    """
    name, target = pod["metadata"]["name"], binding.get("target") or {}
    if target.get("kind") not in (None, "", "Node") or not target.get("name"):
        raise ApiRefusal(500, "InternalError", f"target: found {target!r}, valid is a Node with a name")
    wanted = binding.get("metadata") or {}
    _check_precondition("UID", wanted.get("uid"), pod["metadata"]["uid"], name)
    _check_precondition("ResourceVersion", wanted.get("resourceVersion"), pod["metadata"]["resourceVersion"], name)
    if pod["metadata"].get("deletionTimestamp"):
        raise _conflict(f"pod {name} is being deleted, cannot be assigned to a host")
    if pod["spec"].get("nodeName"):
        raise _conflict(f"pod {name} is already assigned to node {pod['spec']['nodeName']!r}")
    if pod["spec"].get("schedulingGates"):
        raise _conflict(f"pod {name} has non-empty .spec.schedulingGates")
    after = copy.deepcopy(pod)
    after["spec"]["nodeName"] = target["name"]
    annotations = wanted.get("annotations") or {}
    if annotations:
        after["metadata"]["annotations"] = {**(after["metadata"].get("annotations") or {}), **annotations}
    status = after.setdefault("status", {})
    status.pop("nominatedNodeName", None)
    others = [condition for condition in status.get("conditions") or [] if condition.get("type") != "PodScheduled"]
    status["conditions"] = [*others, {"type": "PodScheduled", "status": "True"}]
    return after


def merge_patch(target: object, patch: object) -> object:
    """Return ``target`` after a JSON merge patch (RFC 7386): null removes, objects merge, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def json_patch(target: Object, operations: object) -> Object:
    """Return ``target`` after a JSON patch (RFC 6902): add, replace, remove, test; 422 where a path is not there."""
    if not isinstance(operations, list):
        raise ApiRefusal(400, "BadRequest", "JSON patch: found no list, valid is a list of operations")
    after = copy.deepcopy(target)
    for operation in operations:
        try:
            _operate(after, operation)
        except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
            raise ApiRefusal(422, "Invalid", f"JSON patch {operation!r}: {error!r}") from error
    return after


def updated(before: Object, after: Object, *, is_status: bool) -> Object:
    """Return what an update or patch stores: the status subresource changes status and marks, the object all else.

    409 for a stale resourceVersion; identity and the fields that the server owns stay as they were.
    """
    metadata, old = after.get("metadata") or {}, before["metadata"]
    _check_precondition("ResourceVersion", metadata.get("resourceVersion"), old["resourceVersion"], old["name"])
    result = {**before, "status": after.get("status")} if is_status else {**after, "status": before.get("status")}
    if result["status"] is None:
        del result["status"]
    owned = {key: old[key] for key in _SERVER_OWNED if key in old}
    result["metadata"] = {key: value for key, value in metadata.items() if key not in _SERVER_OWNED} | owned
    result["kind"], result["apiVersion"] = before["kind"], before["apiVersion"]
    return result


def leaving(pod: Object, grace_s: int | None, now: str) -> Object | None:
    """Return the pod that is being deleted, or None where it goes at once.

    It goes at once with no grace, when it never got a node, or when it has ended; otherwise kubelet has to delete it
    with grace 0 in the end. ``now`` is RFC 3339.
    """
    default_s = pod["spec"].get("terminationGracePeriodSeconds", 30)
    grace_s = default_s if grace_s is None else grace_s
    if not pod["spec"].get("nodeName") or (pod.get("status") or {}).get("phase") in _TERMINAL or grace_s == 0:
        return None
    if pod["metadata"].get("deletionTimestamp"):
        return pod
    marks = {"deletionTimestamp": now, "deletionGracePeriodSeconds": grace_s}
    return {**pod, "metadata": {**pod["metadata"], **marks}}


def check_uid(options: Mapping[str, Any], stored_uid: str, name: str) -> None:
    """Refuse with 409 where DeleteOptions name another UID."""
    _check_precondition("UID", (options.get("preconditions") or {}).get("uid"), stored_uid, name)


_SERVER_OWNED = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


def _check_precondition(what: str, wanted: str | None, found: str, name: str) -> None:
    if wanted and wanted != found:
        raise _conflict(f"{name}: {what} in precondition: {wanted}, {what} in object meta: {found}")


def _conflict(message: str) -> ApiRefusal:
    return ApiRefusal(409, "Conflict", message)


def _operate(document: Object, operation: Object) -> None:
    *path, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
    parent: Any = document
    for part in path:
        parent = parent[int(part)] if isinstance(parent, list) else parent[part]
    key: Any = last
    if isinstance(parent, list):
        key = len(parent) if last == "-" else int(last)
    match operation["op"]:
        case "add" if isinstance(parent, list):
            parent.insert(key, operation["value"])
        case "add":
            parent[key] = operation["value"]
        case "replace":
            _ = parent[key]
            parent[key] = operation["value"]
        case "remove":
            del parent[key]
        case "test":
            if parent[key] != operation["value"]:
                raise ValueError(parent[key])
        case other:
            raise ValueError(other)
