"""The few objects that installing needs: Secrets, trust for callers, and the label of the active replica.

Everything here is named, so that the role can name it too (docs/security.md).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Protocol

import msgspec

from extender.errors import UnreadableAnswer

_MERGE_PATCH = "application/merge-patch+json"
_STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/{}/{}"
_JSON = msgspec.json.Encoder()


class ObjectStore(Protocol):
    """Reads and writes any object by path; ``kube.KubeClient`` is one. Raises KubeError children."""

    async def read(self, path: str) -> bytes | None:
        """Read one object; None if there is none."""

    async def write(self, method: str, path: str, body: bytes, content_type: str = "application/json") -> bytes:
        """Write one object and return the answer."""


class _Secret(msgspec.Struct, frozen=True):
    data: dict[str, str] | None = None


class _Webhook(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    client_config: dict[str, object]


class _WebhookConfiguration(msgspec.Struct, frozen=True):
    webhooks: tuple[_Webhook, ...] | None = None


class KubeObjects:
    """Reads and writes those objects."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def get_secret(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        """Read a Secret's entries; None if there is none of that name."""
        body = await self._store.read(f"/api/v1/namespaces/{namespace}/secrets/{name}")
        if body is None:
            return None
        try:
            found = msgspec.json.decode(body, type=_Secret)
            return {key: base64.b64decode(value, validate=True) for key, value in (found.data or {}).items()}
        except (msgspec.DecodeError, ValueError) as error:
            raise UnreadableAnswer(f"secret {namespace}/{name}: {error}") from error

    async def create_secret(self, namespace: str, name: str, entries: Mapping[str, bytes]) -> None:
        """Create a Secret; KubeRefused 409 where one exists."""
        content = {key: base64.b64encode(value).decode() for key, value in entries.items()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "Opaque", "data": content}
        await self._store.write("POST", f"/api/v1/namespaces/{namespace}/secrets", _JSON.encode(secret))

    async def publish_trust(self, namespace: str, name: str, certificates: Mapping[str, bytes]) -> None:
        """Write what callers have to trust into a ConfigMap that exists; KubeRefused 404 where it does not."""
        content = {key: value.decode("ascii") for key, value in certificates.items()}
        path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        await self._store.write("PATCH", path, _JSON.encode({"data": content}), _MERGE_PATCH)

    async def publish_webhook_trust(self, kind: str, name: str, certificate: bytes) -> bool:
        """Tell the API server whom to trust at our webhooks; ``kind`` is the plural of the configuration's.

        Returns False where there is no such configuration (yet). Writes only what differs.
        """
        path = _WEBHOOKS.format(kind, name)
        body = await self._store.read(path)
        if body is None:
            return False
        wanted = base64.b64encode(certificate).decode()
        stale = [each.name for each in _webhooks(body, path) if each.client_config.get("caBundle") != wanted]
        if stale:
            patch = {"webhooks": [{"name": each, "clientConfig": {"caBundle": wanted}} for each in stale]}
            await self._store.write("PATCH", path, _JSON.encode(patch), _STRATEGIC_PATCH)
        return True

    async def label_pod(self, namespace: str, name: str, key: str, value: str | None) -> None:
        """Set one label of a pod; None removes it."""
        body = _JSON.encode({"metadata": {"labels": {key: value}}})
        await self._store.write("PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}", body, _MERGE_PATCH)


def _webhooks(body: bytes, path: str) -> tuple[_Webhook, ...]:
    try:
        return msgspec.json.decode(body, type=_WebhookConfiguration).webhooks or ()
    except msgspec.DecodeError as error:
        raise UnreadableAnswer(f"{path}: {error}") from error
