"""Whom callers are told to trust: written where it differs, again and again, and nowhere that does not exist."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from extender.certificates import Audience
from extender.deployment_settings import DeploymentSettings
from extender.errors import KubeRefused, UnreadableAnswer
from extender.kubeobjects import KubeObjects
from extender.trust import TrustKeeper
from tests.support.clock import ManualClock

TRUST = "/api/v1/namespaces/tangram-agents/configmaps/tangram-trust"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations/tangram"
MUTATING, VALIDATING = WEBHOOKS.format("mutating"), WEBHOOKS.format("validating")
CERTIFICATES = {Audience.AGENTS: b"agents' authority", Audience.WEBHOOKS: b"webhooks' authority"}
BUNDLE = base64.b64encode(b"webhooks' authority").decode()


class Objects:
    """Objects by path; patches are kept as they came."""

    def __init__(self, **found: Any) -> None:
        self.found: dict[str, Any] = {TRUST: {}, MUTATING: hooks("mutate", "route"), VALIDATING: hooks("validate")}
        self.patches: list[tuple[str, Any]] = []

    async def read(self, path: str) -> bytes | None:
        return json.dumps(self.found[path]).encode() if path in self.found else None

    async def write(self, method: str, path: str, body: bytes, content_type: str = "application/json") -> bytes:
        if method == "POST":
            created = json.loads(body)
            path = f"{path}/{created['metadata']['name']}"
            if path in self.found:
                raise KubeRefused(409, "exists")
            self.found[path] = created
            return body
        if path not in self.found:
            raise KubeRefused(404, "not found")
        patch = json.loads(body)
        self.patches.append((path, patch))
        for changed in patch.get("webhooks", []):
            for hook in self.found[path]["webhooks"]:
                if hook["name"] == changed["name"]:
                    hook["clientConfig"] |= changed["clientConfig"]
        return b"{}"


def hooks(*names: str) -> Any:
    return {"webhooks": [{"name": name, "clientConfig": {"service": {"name": "tangram-webhooks"}}} for name in names]}


def keeper(objects: Objects) -> TrustKeeper:
    return TrustKeeper(KubeObjects(objects), DeploymentSettings(), CERTIFICATES, ManualClock())


def test_agents_and_every_webhook_are_told() -> None:
    objects = Objects()
    assert asyncio.run(keeper(objects).round())
    assert (TRUST, {"data": {"ca.crt": "agents' authority"}}) in objects.patches
    for path in (MUTATING, VALIDATING):
        assert all(hook["clientConfig"]["caBundle"] == BUNDLE for hook in objects.found[path]["webhooks"])
        assert all("service" in hook["clientConfig"] for hook in objects.found[path]["webhooks"])


def test_webhooks_that_know_already_are_left_alone() -> None:
    objects = Objects()
    asyncio.run(keeper(objects).round())
    objects.patches.clear()
    objects.found[MUTATING]["webhooks"][1]["clientConfig"]["caBundle"] = "b2xk"
    asyncio.run(keeper(objects).round())
    assert [path for path, _ in objects.patches] == [TRUST, MUTATING]
    assert [hook["name"] for hook in objects.patches[1][1]["webhooks"]] == ["route"]


@pytest.mark.parametrize("missing", [TRUST, MUTATING, VALIDATING])
def test_what_does_not_exist_is_not_made_and_looked_for_again(missing: str) -> None:
    objects = Objects()
    del objects.found[missing]
    assert not asyncio.run(keeper(objects).round())
    assert missing not in objects.found


def test_unreadable_configuration_is_an_error() -> None:
    objects = Objects()
    objects.found[MUTATING] = {"webhooks": "?"}
    with pytest.raises(UnreadableAnswer, match="mutatingwebhookconfigurations"):
        asyncio.run(keeper(objects).round())


class TestSecrets:
    """Secrets come back as they were written."""

    def test_entries_survive_the_round_trip(self) -> None:
        objects = KubeObjects(Objects())

        async def test() -> None:
            assert await objects.get_secret("tangram-system", "authorities") is None
            await objects.create_secret("tangram-system", "authorities", {"a.crt": b"\x00\xff"})
            assert await objects.get_secret("tangram-system", "authorities") == {"a.crt": b"\x00\xff"}
            with pytest.raises(KubeRefused):
                await objects.create_secret("tangram-system", "authorities", {})

        asyncio.run(test())

    def test_entry_that_is_no_base64_is_an_error(self) -> None:
        store = Objects()
        store.found["/api/v1/namespaces/tangram-system/secrets/broken"] = {"data": {"a": "?"}}
        with pytest.raises(UnreadableAnswer, match="secret tangram-system/broken"):
            asyncio.run(KubeObjects(store).get_secret("tangram-system", "broken"))
