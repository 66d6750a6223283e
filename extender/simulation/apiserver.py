"""A Kubernetes API server in memory: pods, nodes, events, leases, bindings, token reviews.

For ``make run`` and for tests; speaks HTTP through ``apiserver_http``. Every verb is one short critical section, so it
may be called from any thread. No admission, no defaults beyond what a scheduler sees, no selectors: what is not
simulated is refused with a message, never ignored.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from extender.kubeapi import TokenIdentity
from extender.simulation.faults import Faults
from extender.simulation.semantics import (
    ApiRefusal,
    Object,
    bound,
    check_uid,
    json_patch,
    leaving,
    merge_patch,
    updated,
)
from extender.simulation.stored import Collection, Key, StoredObject

_ENCODER = msgspec.json.Encoder()
_LISTS_UNDER_WAY = 16
_GENERATED_CHARACTERS = 5
_PATCHES: dict[str, Callable[[Object, object], object]] = {
    "application/merge-patch+json": merge_patch,
    "application/json-patch+json": json_patch,
}


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource: plural name, kind, API version, and whether it lives in a namespace."""

    plural: str
    kind: str
    api_version: str
    is_namespaced: bool = True


RESOURCES = {
    resource.plural: resource
    for resource in (
        Resource("pods", "Pod", "v1"),
        Resource("nodes", "Node", "v1", is_namespaced=False),
        Resource("events", "Event", "v1"),
        Resource("leases", "Lease", "coordination.k8s.io/v1"),
    )
}


class SimulatedApiServer:
    """The objects and the verbs on them. ``history_events`` bounds how far back a watch of one kind may start."""

    def __init__(self, history_events: int = 20_000, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.faults = Faults()
        self.lock = threading.RLock()
        self.collections = {
            plural: Collection(resource.kind, resource.api_version, history_events)
            for plural, resource in RESOURCES.items()
        }
        self._now = now
        self._version = 0
        self._pages: OrderedDict[str, tuple[int, list[bytes]]] = OrderedDict()
        self._tokens: dict[str, TokenIdentity] = {}

    @property
    def version(self) -> int:
        """The version of the newest write."""
        return self._version

    def create(self, resource: str, namespace: str, item: Mapping[str, object]) -> bytes:
        """Store a new object and return it; 409 where the name is taken. ``generateName`` is completed."""
        with self.lock:
            collection = self.collections[resource]
            after = self._born(RESOURCES[resource], namespace, item)
            key = (after["metadata"].get("namespace", ""), after["metadata"]["name"])
            if collection.get(key) is not None:
                raise ApiRefusal(409, "AlreadyExists", f"{resource} {key[1]!r} already exists")
            return self._write(collection, key, after)

    def get(self, resource: str, namespace: str, name: str) -> bytes:
        """Return one object; 404 where there is none."""
        with self.lock:
            return self._stored(resource, (namespace, name)).content

    def update(self, resource: str, namespace: str, name: str, item: Object, *, is_status: bool = False) -> bytes:
        """Replace an object, or its status, and return it; 409 where its resourceVersion is stale."""
        return self._change(resource, (namespace, name), lambda before: updated(before, item, is_status=is_status))

    def patch(
        self, resource: str, namespace: str, name: str, patch: object, content_type: str, *, is_status: bool = False
    ) -> bytes:
        """Patch an object, or its status, and return it; 415 for other patches than merge and JSON patch."""
        apply = _PATCHES.get(content_type)
        if apply is None:
            raise ApiRefusal(415, "UnsupportedMediaType", f"patch: found {content_type}, valid are {sorted(_PATCHES)}")

        def patched(before: Object) -> Object:
            after = apply(before, patch)
            if not isinstance(after, dict):
                raise ApiRefusal(422, "Invalid", "patch: the result is no object")
            return updated(before, after, is_status=is_status)

        return self._change(resource, (namespace, name), patched)

    def bind(self, namespace: str, name: str, binding: Object) -> None:
        """Bind a pod to a node and merge the Binding's annotations into it, in one write."""
        self._change("pods", (namespace, name), lambda pod: bound(pod, binding))

    def delete(self, resource: str, namespace: str, name: str, options: Mapping[str, object]) -> bytes:
        """Delete an object and return it as it is now; a pod on a node is first marked and keeps running."""
        with self.lock:
            key, collection = (namespace, name), self.collections[resource]
            stored = self._stored(resource, key)
            check_uid(options, stored.uid, name)
            before = msgspec.json.decode(stored.content)
            if resource == "pods":
                grace_s = options.get("gracePeriodSeconds")
                after = leaving(before, grace_s if isinstance(grace_s, int) else None, self._stamp())
                if after is not None:
                    return stored.content if after == before else self._write(collection, key, after)
            last = self._encoded(before)
            collection.remove(key, last)
            return last.content

    def list_page(self, resource: str, namespace: str, limit: int, token: str) -> bytes:
        """Return one page of a consistent list; 410 for a token that is no longer known. Limit 0 is no limit."""
        with self.lock:
            version, rest = self._list_from(resource, namespace, token)
            page = rest[:limit] if limit else rest
            token = ""
            if len(rest) > len(page):
                token = uuid.uuid4().hex
                self._pages[token] = (version, rest[len(page) :])
                while len(self._pages) > _LISTS_UNDER_WAY:
                    self._pages.popitem(last=False)
        collection = self.collections[resource]
        head = {"kind": f"{collection.kind}List", "apiVersion": collection.api_version}
        metadata = {"resourceVersion": str(version), "continue": token}
        start = _ENCODER.encode({**head, "metadata": metadata})
        return start[:-1] + b',"items":[' + b",".join(page) + b"]}"

    def admit_token(self, token: str, identity: TokenIdentity) -> None:
        """Let token reviews say yes to ``token`` for the audiences of ``identity``."""
        with self.lock:
            self._tokens[token] = identity

    def review_token(self, token: str, audiences: list[str]) -> Object:
        """Return the status of a token review."""
        with self.lock:
            identity = self._tokens.get(token)
        shared = [] if identity is None else [name for name in identity.audiences if name in audiences]
        if identity is None or not shared:
            return {"authenticated": False, "error": "token is not valid for these audiences"}
        user = {
            "username": identity.username,
            "uid": identity.uid,
            "groups": list(identity.groups),
            "extra": {key: list(values) for key, values in identity.extra.items()},
        }
        return {"authenticated": True, "user": user, "audiences": shared}

    def _list_from(self, resource: str, namespace: str, token: str) -> tuple[int, list[bytes]]:
        if not token:
            return self._version, [stored.content for _, stored in self.collections[resource].snapshot(namespace)]
        known = self._pages.pop(token, None)
        if known is None:
            raise ApiRefusal(410, "Expired", "the continue parameter is too old, list from the start")
        return known

    def _change(self, resource: str, key: Key, change: Callable[[Object], Object]) -> bytes:
        with self.lock:
            stored = self._stored(resource, key)
            before = msgspec.json.decode(stored.content)
            after = change(before)
            return stored.content if after == before else self._write(self.collections[resource], key, after)

    def _stored(self, resource: str, key: Key) -> StoredObject:
        stored = self.collections[resource].get(key)
        if stored is None:
            raise ApiRefusal(404, "NotFound", f"{resource} {key[1]!r} not found")
        return stored

    def _write(self, collection: Collection, key: Key, item: Object) -> bytes:
        stored = self._encoded(item)
        collection.put(key, stored)
        return stored.content

    def _encoded(self, item: Object) -> StoredObject:
        self._version += 1
        item = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self._version)}}
        return StoredObject(item["metadata"]["uid"], self._version, _ENCODER.encode(item))

    def _born(self, resource: Resource, namespace: str, item: Mapping[str, object]) -> Object:
        given = item.get("metadata")
        metadata: Object = dict(given) if isinstance(given, Mapping) else {}
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:_GENERATED_CHARACTERS]
        if not metadata.get("name"):
            raise ApiRefusal(422, "Invalid", "metadata.name: found nothing, valid is a name or a generateName")
        if resource.is_namespaced:
            metadata["namespace"] = namespace
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": self._stamp()}
        born: Object = {"kind": resource.kind, "apiVersion": resource.api_version, **item, "metadata": metadata}
        if resource.kind == "Pod":
            born["spec"] = born.get("spec") or {}
            born["status"] = {"phase": "Pending", **(born.get("status") or {})}
        return born

    def _stamp(self) -> str:
        return self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
