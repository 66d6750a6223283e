"""Reaches an extender inside a cluster as ``kubectl port-forward`` does, with a short-lived token for pod names.

The API server authenticates the way to the pod, and the kubelet the pod; so where ``--ca`` is not given, the pod's own
certificate is not checked again inside the tunnel.
"""

from __future__ import annotations

import http.client
import ssl
import threading

from extender.cli.arguments import Access
from extender.cli.client import TIMEOUT_S, Client, tls_context
from extender.cli.cluster import CoreApi, called, core_api
from extender.cli.problems import NOT_FOUND, CliProblem

PEOPLE_PORT = 8273
AUDIENCE = "tangram"
VIEWER = "tangram-viewer"
_SELECTOR = "app.kubernetes.io/name=tangram,app.kubernetes.io/component=extender"
_TOKEN_S = 600
_PROXY_THREAD = "Kubernetes port forward proxy"
_ENDS_WITHIN_S = 1.0


class _Tunnelled(http.client.HTTPConnection):
    """An HTTP connection over a port-forward, TLS inside; both end together."""

    def __init__(self, forward: CoreApi, context: ssl.SSLContext, name: str | None) -> None:
        super().__init__("tangram", timeout=TIMEOUT_S)
        self._forward = forward
        connected = forward.socket(PEOPLE_PORT)
        connected.settimeout(TIMEOUT_S)
        try:
            self.sock = context.wrap_socket(connected, server_hostname=name)
        except OSError:
            _end(forward)
            raise

    def connect(self) -> None:
        """Keep the socket there is."""

    def close(self) -> None:
        """End the connection and the port-forward."""
        super().close()
        _end(self._forward)


def open_tunnel(access: Access) -> Client:
    """Return a client that reaches a ready extender through the API server. Raises CliProblem."""
    threading.excepthook = _quiet
    api = core_api(access)
    pod = _extender_pod(api, access.system_namespace)
    token = access.token or _token(api, access.system_namespace)
    where = f"pod {access.system_namespace}/{pod}"
    context = tls_context(access.ca) if access.ca else _tunnel_context()
    names = pod if access.ca else None

    def connect() -> http.client.HTTPConnection:
        return _Tunnelled(_forwarded(api, access.system_namespace, pod), context, names)

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


def _forwarded(api: CoreApi, namespace: str, pod: str) -> CoreApi:
    """Return a port-forward to the pod's port for people."""
    from kubernetes.client.exceptions import ApiException
    from kubernetes.stream import portforward

    try:
        return portforward(api.connect_get_namespaced_pod_portforward, pod, namespace, ports=str(PEOPLE_PORT))
    except ApiException as error:
        raise CliProblem(f"port-forward to {namespace}/{pod}: {error.status} {error.reason}") from error


def _end(forward: CoreApi) -> None:
    """End a port-forward and let go of what the official client leaves open when its thread ends by an error."""
    forward.close()
    for thread in threading.enumerate():
        if thread.name.startswith(_PROXY_THREAD):
            thread.join(_ENDS_WITHIN_S)
    for port in forward.local_ports.values():
        port.python.close()
    forward.websocket.close()


def _quiet(details: threading.ExceptHookArgs) -> None:
    """Pass on what ends a thread, but for the official client's proxy: it dies of a connection that was reset.

    The connection's user gets the error of its own socket; a traceback beside it would hide that.
    """
    is_proxy = details.thread is not None and details.thread.name.startswith(_PROXY_THREAD)
    if not (is_proxy and isinstance(details.exc_value, OSError)):
        threading.__excepthook__(details)


def _tunnel_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
