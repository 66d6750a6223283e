"""The door as tests put it before a control plane: the chart's policies, and the extender's webhooks over TLS.

The webhooks are the extender's own routes, served in this process so that a test can take them down and up again; the
policies are rendered from the chart by helm.
"""

import base64
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import trustme
import uvicorn
import yaml
from starlette.types import ASGIApp, Receive, Scope, Send

from extender.admission import Door
from extender.routes.admission import MUTATE_PATH, VALIDATE_PATH, admission_routes
from extender.routes.raw import FrontDoor
from tests.controlplane.api import Api, Json, PatchKind
from tests.controlplane.loopback import free_ports

TEMPLATES = Path(__file__).parents[2] / "manifests" / "chart" / "templates"
BINDER = "system:serviceaccount:tangram-system:tangram-extender"
_POLICIES = "/apis/admissionregistration.k8s.io/v1"
_COLLECTIONS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}
_START_S = 10.0
_CONDITIONS = """
asksOurs: {{ include "tangram.policies.asksOurs" . | toJson }}
isRouted: {{ include "tangram.policies.isRouted" . | toJson }}
"""


def render(
    helm: Path, directory: Path, values: Mapping[str, object] | None = None
) -> tuple[list[Json], dict[str, str]]:
    """Return the policies of the chart, and by name the conditions that its webhooks select pods with."""
    templates = directory / "templates"
    templates.mkdir(parents=True, exist_ok=True)
    for path in [TEMPLATES / "_policies.tpl", *sorted(TEMPLATES.glob("policies*.yaml"))]:
        shutil.copy(path, templates)
    (templates / "zz-conditions.yaml").write_text(_CONDITIONS, encoding="utf-8")
    (directory / "Chart.yaml").write_text("apiVersion: v2\nname: tangram\nversion: 0.0.1\n", encoding="utf-8")
    (directory / "values.yaml").write_text(yaml.safe_dump(dict(values or {})), encoding="utf-8")
    command = [str(helm), "template", "tangram", str(directory), "--namespace", "tangram-system"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if answer.returncode:
        message = f"helm template: {answer.stderr[-2000:]}"
        raise RuntimeError(message)
    found = [document for document in yaml.safe_load_all(answer.stdout) if document]
    (conditions,) = [each for each in found if "kind" not in each]
    return [each for each in found if "kind" in each], conditions


def install(api: Api, objects: list[Json]) -> None:
    """Put policies, their bindings and webhook configurations in, or bring them up to date."""
    for each in objects:
        api.patch(_path(each), each, PatchKind.APPLY)


def remove(api: Api, objects: list[Json]) -> None:
    """Take such objects out."""
    for each in objects:
        api.delete(_path(each))


def _path(found: Json) -> str:
    return f"{_POLICIES}/{_COLLECTIONS[found['kind']]}/{found['metadata']['name']}"


class WebhookServer:
    """Serves an ASGI application over TLS on loopback, always at the same address; may be stopped and started."""

    def __init__(self, app: ASGIApp, directory: Path) -> None:
        (self._port,) = free_ports(1)
        self._app = app
        authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self.authority: bytes = authority.cert_pem.bytes()
        self._chain = directory / "webhook.pem"
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(self._chain)
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def url(self, path: str) -> str:
        """Return the address of one webhook."""
        return f"https://127.0.0.1:{self._port}{path}"

    def context(self) -> ssl.SSLContext:
        """Return the TLS that the webhooks are served with."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._chain)
        return context

    def start(self) -> None:
        """Serve until stopped."""
        config = uvicorn.Config(
            self._app, host="127.0.0.1", port=self._port, lifespan="off", ws="none", log_level="warning"
        )
        config.load()
        config.ssl = self.context()
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, name="webhooks", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + _START_S
        while not self._server.started:
            if time.monotonic() > deadline or not self._thread.is_alive():
                message = "the webhooks do not serve"
                raise RuntimeError(message)
            time.sleep(0.02)

    def stop(self) -> None:
        """Take the webhooks down: connections are refused from here on."""
        if self._server is not None and self._thread is not None:
            self._server.force_exit = self._server.should_exit = True
            self._thread.join(_START_S)
            self._server = self._thread = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def webhooks(door: Door) -> ASGIApp:
    """Return the extender's webhooks and nothing behind them."""
    return FrontDoor(admission_routes(door), _nothing)


def mutating(server: WebhookServer, asks_ours: str, is_routed: str) -> Json:
    """Return the configuration of the mutating webhook: GPU pods never pass without it, others never wait for it."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "tangram"},
        "webhooks": [
            _webhook(server, "gpu.tangram.dev", MUTATE_PATH, "Fail", asks_ours) | {"reinvocationPolicy": "IfNeeded"},
            _webhook(server, "route.tangram.dev", MUTATE_PATH, "Ignore", f"!({asks_ours}) && {is_routed}"),
        ],
    }


def validating(server: WebhookServer, asks_ours: str) -> Json:
    """Return the configuration of the validating webhook."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "tangram"},
        "webhooks": [_webhook(server, "valid.tangram.dev", VALIDATE_PATH, "Fail", asks_ours)],
    }


def _webhook(server: WebhookServer, name: str, path: str, failure_policy: str, condition: str) -> Json:
    return {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 5,
        "failurePolicy": failure_policy,
        "clientConfig": {"url": server.url(path), "caBundle": base64.b64encode(server.authority).decode()},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "matchConditions": [{"name": "pods-of-ours", "expression": condition}],
    }


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    del scope, receive
    await send({"type": "http.response.start", "status": 404, "headers": []})
    await send({"type": "http.response.body", "body": b""})
