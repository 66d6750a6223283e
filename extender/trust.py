"""Keeps those who call us told whom to trust: agents by a ConfigMap, the API server by the webhooks' configurations.

These objects may come after us, be made anew by an upgrade, or not be wanted, so they are looked at again and again.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from extender.certificates import Audience
from extender.clock import Clock
from extender.deployment_settings import DeploymentSettings
from extender.errors import KubeError, KubeRefused
from extender.kubeobjects import KubeObjects

_LOG = structlog.get_logger(__name__)
_KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_NOT_FOUND = 404
_SOON_S = 2.0
_LATER_S = 60.0


class TrustKeeper:
    """Publishes certificates; every replica writes the same. ``certificates`` names only what is ours to publish."""

    def __init__(
        self, objects: KubeObjects, deployment: DeploymentSettings, certificates: Mapping[Audience, bytes], clock: Clock
    ) -> None:
        self._objects = objects
        self._deployment = deployment
        self._certificates = certificates
        self._clock = clock

    async def run(self) -> None:
        """Publish again and again until cancelled."""
        while True:
            try:
                is_complete = await self.round()
            except KubeError as error:
                _LOG.warning("trust_not_published", error=str(error))
                is_complete = False
            await self._clock.sleep(_LATER_S if is_complete else _SOON_S)

    async def round(self) -> bool:
        """Publish once; return whether everything to write into was there. Raises KubeError."""
        done = True
        for audience, certificate in self._certificates.items():
            match audience:
                case Audience.AGENTS:
                    done &= await self._tell_agents(certificate)
                case Audience.WEBHOOKS:
                    for kind in _KINDS:
                        name = self._deployment.webhook_configuration
                        done &= await self._objects.publish_webhook_trust(kind, name, certificate)
                case _:
                    continue
        return done

    async def _tell_agents(self, certificate: bytes) -> bool:
        deployment = self._deployment
        try:
            await self._objects.publish_trust(
                deployment.agent_namespace, deployment.trust_config_map, {"ca.crt": certificate}
            )
        except KubeRefused as refusal:
            if refusal.status != _NOT_FOUND:
                raise
            return False
        return True
