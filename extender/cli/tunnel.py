"""Reaches an extender inside a cluster as ``kubectl port-forward`` does, with a short-lived token for pod names.

The API server authenticates the way to the pod, and the kubelet the pod; so where ``--ca`` is not given, the pod's own
certificate is not checked again inside the tunnel.
"""

from __future__ import annotations

import http.client
import socket
import ssl

from extender.cli.arguments import Access
from extender.cli.client import TIMEOUT_S, Client, tls_context
from extender.cli.cluster import CoreApi, called, core_api
from extender.cli.problems import NOT_FOUND, CliProblem

PEOPLE_PORT = 8273
AUDIENCE = "tangram"
VIEWER = "tangram-viewer"
_SELECTOR = "app.kubernetes.io/name=tangram,app.kubernetes.io/component=extender"
_TOKEN_S = 600


class _Tunnelled(http.client.HTTPConnection):
    """An HTTP connection over a socket that is connected already."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__("tangram", timeout=TIMEOUT_S)
        self.sock = connected

    def connect(self) -> None:
        """Keep the socket there is."""


def open_tunnel(access: Access) -> Client:
    """Return a client that reaches a ready extender through the API server. Raises CliProblem."""
    api = core_api(access)
    pod = _extender_pod(api, access.system_namespace)
    token = access.token or _token(api, access.system_namespace)
    where = f"pod {access.system_namespace}/{pod}"
    context = tls_context(access.ca) if access.ca else _tunnel_context()
    names = pod if access.ca else None

    def connect() -> http.client.HTTPConnection:
        secured = context.wrap_socket(_forwarded(api, access.system_namespace, pod), server_hostname=names)
        return _Tunnelled(secured)

    return Client(connect, where, token)


def _extender_pod(api: CoreApi, namespace: str) -> str:
    found = called(f"pods in {namespace}", api.list_namespaced_pod, namespace, label_selector=_SELECTOR).items
    ready = [pod.metadata.name for pod in found if _is_ready(pod)]
    if not ready:
        state = f"{len(found)} there, none ready" if found else "none is there"
        raise CliProblem(
            f"no extender in namespace {namespace}: {state}; see --system-namespace and --url",
            NOT_FOUND,
        )
    return str(min(ready))


def _is_ready(pod: CoreApi) -> bool:
    conditions = pod.status.conditions or ()
    return any(condition.type == "Ready" and condition.status == "True" for condition in conditions)


def _token(api: CoreApi, namespace: str) -> str:
    """Return a token of the viewer's account, or none where the user may not have one: then pod names stay hidden."""
    body = {"spec": {"audiences": [AUDIENCE], "expirationSeconds": _TOKEN_S}}
    try:
        answer = called("token", api.create_namespaced_service_account_token, VIEWER, namespace, body)
    except CliProblem:
        return ""
    return str(answer.status.token)


def _forwarded(api: CoreApi, namespace: str, pod: str) -> socket.socket:
    """Return a socket that ends at the pod's port for people."""
    from kubernetes.client.exceptions import ApiException
    from kubernetes.stream import portforward

    try:
        forward = portforward(api.connect_get_namespaced_pod_portforward, pod, namespace, ports=str(PEOPLE_PORT))
    except ApiException as error:
        raise CliProblem(f"port-forward to {namespace}/{pod}: {error.status} {error.reason}") from error
    connected: socket.socket = forward.socket(PEOPLE_PORT)
    connected.settimeout(TIMEOUT_S)
    return connected


def _tunnel_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
