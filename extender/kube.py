"""The only module that talks to the API server.

The official client supplies configuration, authentication and TLS; bodies are written and read with msgspec, because
the client's models cost 20 to 95 times the processor time and answer a successful Binding with an exception
(kubernetes-client/python #547). Calls block, so they run in a small pool of threads behind ``async`` methods; list and
watch stay blocking for the reflector's threads. Errors are the KubeError family of ``extender.errors``, with the
library's own as their cause.
"""

from __future__ import annotations

import asyncio
import ssl
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import msgspec
from kubernetes import client, config
from urllib3.util.ssl_ import create_urllib3_context

from extender.errors import KubeError, KubeRefused, KubeUnreachable
from extender.kubeapi import BindOutcome, BindStatus, EventNote, EventType, Kube, Lease, TokenIdentity
from extender.kubejson import (
    check_success,
    decode_lease,
    decode_pod,
    decode_token_review,
    encode_binding,
    encode_event,
    encode_lease,
    encode_token_review,
)
from extender.objects import Pod
from extender.transport import Limits, Transport, WatchStream

__all__ = [
    "BindOutcome",
    "BindStatus",
    "EventNote",
    "EventType",
    "Kube",
    "KubeClient",
    "KubeOptions",
    "Lease",
    "TokenIdentity",
]

_T = TypeVar("_T")
_NOT_FOUND = 404
_REQUEST_TIMEOUT = 408
_MERGE_PATCH = "application/merge-patch+json"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
_WATCHES = 4
_JSON = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class KubeOptions:
    """How to talk to the API server.

    ``threads``           calls at one time, 1 to 64
    ``strict_x509``       False accepts certificates without key identifiers, which Python 3.13 refuses by default
                          (older managed clusters; python-stack note 5.5); everything else is verified as before
    ``component``         the name under which events and requests appear
    """

    limits: Limits = field(default_factory=Limits)
    threads: int = 8
    strict_x509: bool = True
    component: str = "tangram"


class KubeClient:
    """The ``Kube`` of a real API server, and its lists and watches.

    Make one with ``from_kubeconfig``, ``in_cluster`` or ``from_url``; ``close`` it once. Never shared across fork.
    """

    def __init__(
        self,
        configuration: client.Configuration,
        options: KubeOptions | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._options = options or KubeOptions()
        self._now = now
        self._transport = _transport(configuration, self._options, monotonic)
        self._threads = ThreadPoolExecutor(self._options.threads, thread_name_prefix="kube")

    @classmethod
    def from_kubeconfig(cls, path: Path, context: str | None = None, options: KubeOptions | None = None) -> KubeClient:
        """Connect as the kubeconfig says, ``context`` None as its current one does; KubeUnreachable if it is unfit."""
        configuration = client.Configuration()
        try:
            config.load_kube_config(str(path), context, configuration, persist_config=False)  # type: ignore[no-untyped-call]
        except (config.ConfigException, OSError) as error:
            msg = f"kubeconfig {path}: {error}"
            raise KubeUnreachable(msg) from error
        return cls(configuration, options)

    @classmethod
    def in_cluster(cls, options: KubeOptions | None = None) -> KubeClient:
        """Connect as the pod's service account; its token is read again every minute."""
        configuration = client.Configuration()
        try:
            config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        except config.ConfigException as error:
            msg = f"service account of this pod: {error}"
            raise KubeUnreachable(msg) from error
        return cls(configuration, options)

    @classmethod
    def from_url(cls, url: str, token: str | None = None, options: KubeOptions | None = None) -> KubeClient:
        """Connect to a plain address, with a bearer token if one is given."""
        configuration = client.Configuration()
        configuration.host = url
        if token is not None:
            configuration.api_key["BearerToken"] = f"Bearer {token}"
        return cls(configuration, options)

    async def close(self) -> None:
        """Wait for calls in flight (each has a timeout) and close all connections."""
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)
        self._transport.close()

    # The verbs of Kube.

    async def get_pod(self, namespace: str, name: str) -> Pod | None:
        """Read one pod as it is now; None if there is none of that name."""
        body = await self._read(_pod_path(namespace, name))
        return None if body is None else decode_pod(body, namespace, name)

    async def bind(
        self,
        namespace: str,
        name: str,
        uid: str,
        node: str,
        annotations: Mapping[str, str],
        deadline_s: float | None = None,
        resource_version: str = "",
    ) -> BindOutcome:
        """Bind the pod of that UID to ``node`` and add ``annotations`` to it, in one write. Raises nothing."""
        body = encode_binding(namespace, name, uid, node, annotations, resource_version)
        path = f"{_pod_path(namespace, name)}/binding"
        try:
            check_success(await self._run(lambda: self._transport.send("POST", path, body, deadline_s=deadline_s)))
        except KubeError as error:
            return bind_outcome(error)
        return BindOutcome(BindStatus.BOUND)

    async def patch_node_status(self, node: str, totals: Mapping[str, str | None]) -> None:
        """Set resources in the node's capacity and allocatable; None removes one."""
        patch = {"status": {"capacity": totals, "allocatable": totals}}
        await self._write("PATCH", f"{_node_path(node)}/status", _JSON.encode(patch), _MERGE_PATCH)

    async def patch_node_annotation(self, node: str, key: str, value: str | None) -> None:
        """Set one annotation of a node; None removes it."""
        patch = {"metadata": {"annotations": {key: value}}}
        await self._write("PATCH", _node_path(node), _JSON.encode(patch), _MERGE_PATCH)

    async def create_event(self, note: EventNote) -> None:
        """Create an event about a pod or a node; events about nodes live in the namespace ``default``."""
        body = encode_event(note, self._options.component, self._now(), uuid.uuid4().hex[:16])
        await self._write("POST", f"/api/v1/namespaces/{_part(note.namespace or 'default')}/events", body)

    async def token_review(self, token: str, audiences: Sequence[str]) -> TokenIdentity | None:
        """Ask whom a token speaks for; None if it is not valid for any of ``audiences``."""
        body = encode_token_review(token, audiences)
        answer = await self._write("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body)
        return decode_token_review(answer, audiences)

    async def get_lease(self, namespace: str, name: str) -> Lease | None:
        """Read a lease; None if there is none of that name."""
        body = await self._read(f"{_LEASES.format(_part(namespace))}/{_part(name)}")
        return None if body is None else decode_lease(body)

    async def create_lease(self, lease: Lease) -> Lease:
        """Create a lease; KubeRefused 409 where one exists."""
        answer = await self._write("POST", _LEASES.format(_part(lease.namespace)), encode_lease(lease))
        return decode_lease(answer)

    async def update_lease(self, lease: Lease) -> Lease:
        """Replace a lease if its ``resource_version`` is still current; KubeRefused 409 where it is not."""
        path = f"{_LEASES.format(_part(lease.namespace))}/{_part(lease.name)}"
        return decode_lease(await self._write("PUT", path, encode_lease(lease)))

    # Any other object, for extender.kubeobjects.

    async def read(self, path: str) -> bytes | None:
        """Read one object; None if there is none."""
        return await self._read(path)

    async def write(self, method: str, path: str, body: bytes, content_type: str = "application/json") -> bytes:
        """Write one object and return the answer."""
        return await self._write(method, path, body, content_type)

    # List and watch, blocking, for the reflector's threads.

    def list_page(self, path: str, limit: int, continue_token: str) -> bytes:
        """Return one page of a consistent list (never resourceVersion 0); an empty token asks for the first."""
        query = {"limit": str(limit)}
        if continue_token:
            query["continue"] = continue_token
        return self._transport.get(path, query, self._options.limits.list_timeout_s)

    def open_watch(self, path: str, resource_version: str, timeout_s: int, silence_s: float) -> WatchStream:
        """Watch with bookmarks from there on, for ``timeout_s`` at most; ``silence_s`` without a byte ends it."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_s),
        }
        return self._transport.watch(path, query, silence_s)

    async def _read(self, path: str) -> bytes | None:
        try:
            return await self._run(lambda: self._transport.get(path))
        except KubeRefused as refusal:
            if refusal.status == _NOT_FOUND:
                return None
            raise

    async def _write(self, method: str, path: str, body: bytes, content_type: str = "application/json") -> bytes:
        return await self._run(lambda: self._transport.send(method, path, body, content_type))

    async def _run(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


def bind_outcome(error: KubeError) -> BindOutcome:
    """Return what an error says about a Binding; only a 4xx answer, or nothing sent, is a definite no.

    A 2xx answer that is no Status of success is neither yes nor no: who knows who gave it.

    408 counts as unknown: a proxy on the way may have sent it after passing the request on.
    """
    match error:
        case KubeRefused(status=status) if 400 <= status < 500 and status != _REQUEST_TIMEOUT:
            return BindOutcome(BindStatus.REFUSED, status, str(error))
        case KubeRefused(status=status):
            return BindOutcome(BindStatus.UNKNOWN, status, str(error))
        case KubeUnreachable():
            return BindOutcome(BindStatus.REFUSED, None, str(error))
        case _:
            return BindOutcome(BindStatus.UNKNOWN, None, str(error))


def _transport(configuration: client.Configuration, options: KubeOptions, monotonic: Callable[[], float]) -> Transport:
    configuration.keep_alive = True
    configuration.connection_pool_maxsize = options.threads + _WATCHES
    pool = client.ApiClient(configuration).rest_client.pool_manager
    if not options.strict_x509 and configuration.verify_ssl:
        pool.connection_pool_kw["ssl_context"] = lenient_context()
    return Transport(pool, configuration.host, lambda: _headers(configuration, options), options.limits, monotonic)


def lenient_context() -> ssl.SSLContext:
    """Return a verifying TLS context that accepts certificates without key identifiers.

    urllib3 loads the authorities and the client certificate into it. The official client has no switch for this
    (kubernetes-client/python #2394).
    """
    context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _headers(configuration: client.Configuration, options: KubeOptions) -> dict[str, str]:
    headers = {"User-Agent": options.component}
    token = configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
    if token:
        headers["Authorization"] = token
    return headers


def _pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{_part(namespace)}/pods/{_part(name)}"


def _node_path(name: str) -> str:
    return f"/api/v1/nodes/{_part(name)}"


def _part(name: str) -> str:
    """Return a name as one part of a path, whatever it contains; dots alone would lead out of it."""
    return quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")
