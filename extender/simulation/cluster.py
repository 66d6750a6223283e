"""What the simulation does to the API server itself: creates nodes and pods, moves their phases, deletes them.

The part of users, kubelets and controllers; the scheduler and the extender have clients of their own. Blocking calls.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import urllib3

from extender.errors import KubeRefused
from extender.transport import Limits, Transport

_MERGE_PATCH = "application/merge-patch+json"
_ENCODER = msgspec.json.Encoder()
_GONE = (404, 409)


class Cluster:
    """The API server at a URL. Every method raises KubeError children."""

    def __init__(self, url: str, connections: int = 16) -> None:
        pool = urllib3.PoolManager(num_pools=2, maxsize=connections, block=False)
        self._transport = Transport(pool, url, dict, Limits())

    def create_node(self, node: Mapping[str, object]) -> None:
        """Register a node with its status."""
        self._transport.send("POST", "/api/v1/nodes", _ENCODER.encode(node))

    def create_pod(self, namespace: str, pod: Mapping[str, object]) -> None:
        """Create a pod, as its author or a controller would."""
        self._transport.send("POST", f"/api/v1/namespaces/{namespace}/pods", _ENCODER.encode(pod))

    def patch_pod_status(self, namespace: str, name: str, status: Mapping[str, object]) -> bool:
        """Merge into a pod's status, as kubelet or the scheduler would; return False where the pod is gone."""
        body = _ENCODER.encode({"status": status})
        return self._if_there("PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}/status", body, _MERGE_PATCH)

    def delete_pod(self, namespace: str, name: str, grace_s: int) -> bool:
        """Ask for a pod's deletion; 0 seconds of grace remove it at once. Return False where it is gone."""
        body = _ENCODER.encode({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": grace_s})
        return self._if_there("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", body)

    def list_pods(self) -> list[dict[str, object]]:
        """Return every pod as it is now."""
        body = self._transport.get("/api/v1/pods")
        return msgspec.json.decode(body, type=_PodList).items

    def close(self) -> None:
        """Close idle connections."""
        self._transport.close()

    def _if_there(self, method: str, path: str, body: bytes, content_type: str = "application/json") -> bool:
        try:
            self._transport.send(method, path, body, content_type)
        except KubeRefused as refusal:
            if refusal.status in _GONE:
                return False
            raise
        return True


class _PodList(msgspec.Struct, frozen=True):
    items: list[dict[str, object]]
