"""One replica in its cluster, wired: lease, identities, certificates and listeners around the application.

::

    authorities (one Secret for all replicas) ──> leaves ──> listeners ─┐
    lease ──> tenure ──> may_act ───────────────────────────────────────┼──> application ──> store
    TokenReview ──> identities ──> agents' reports, pod names ──────────┘

Stopping goes the other way round: no new connections, answers under way finished, the lease given back, and only then
the process ends, so that the next holder does not wait for the lease to run out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from extender.app import Extender, Surroundings, create_app
from extender.authorities import Subject
from extender.catchup import list_bound_pods
from extender.certificates import Audience, Authorities, IssuedLeaf, MountedLeaf, Rotation, ServerTls, bootstrap
from extender.clock import Clock, SystemClock
from extender.deployment_settings import Certificates, DeploymentSettings, Mode
from extender.errors import KubeError
from extender.identity import AgentGuard, Identities, ViewerGate, service_account_user
from extender.kube import KubeClient
from extender.kubeobjects import KubeObjects
from extender.lease import Election, LeaseTerms, PairedLease
from extender.listeners import Listener, Listeners
from extender.settings import Settings
from extender.tenure import Tenure
from extender.trust import TrustKeeper

_LOOPBACK = "127.0.0.1"
ACTIVE_LABEL = "active"
_LABEL_INTERVAL_S = 1.0


class Lead(Protocol):
    """Knows whether this replica leads."""

    def may_act(self) -> bool:
        """Return whether this replica may act on the cluster now."""

    async def run(self) -> None:
        """Follow the lease until cancelled."""

    async def release(self) -> None:
        """Act no more."""


class Replica:
    """One extender with everything around it; ``run`` is its life."""

    def __init__(self, settings: Settings, kube: KubeClient, clock: Clock | None = None) -> None:
        self._settings = settings
        self._deployment = settings.deployment
        self._kube = kube
        self._objects = KubeObjects(kube)
        self._clock = clock or SystemClock()
        self.lead = _lead(settings, kube, self._clock, self._catch_up)
        account = service_account_user(self._deployment.agent_namespace, self._deployment.agent_account)
        identities = Identities(kube, self._clock)
        self.guard = AgentGuard(identities, account)
        self.viewers = ViewerGate(identities, frozenset(self._deployment.viewer_accounts))
        self.app: Extender = create_app(settings, self._surroundings(kube))
        for gate in (self.guard, self.viewers):
            self.app.services.metrics.registry.register(gate.refusals)

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT; KubeError or UnusableAuthority where no certificates are to be had."""
        tls, trusted = await self._certificates()
        listeners = Listeners(self.app, listeners_of(self._deployment, tls), at_once=self.app.at_once)
        listeners.bind()
        trust = TrustKeeper(self._objects, self._deployment, trusted, self._clock)
        jobs = [Rotation(tls, self._clock).run(), self.lead.run(), trust.run()]
        if self._deployment.mode is Mode.STAND_ALONE:
            jobs.append(self._keep_label())
        tasks = [asyncio.create_task(job) for job in jobs]
        try:
            await listeners.serve_until_signal()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.lead.release()
            await self._kube.close()

    def _surroundings(self, kube: KubeClient) -> Surroundings:
        return Surroundings(
            kube,
            kube,
            self._clock,
            self.lead.may_act,
            self.guard,
            self.viewers.may_see_names,
            self._settings.admission.injector,
        )

    async def _catch_up(self) -> None:
        handler = self.app.pod_handler()
        await list_bound_pods(self._kube, handler.on_set)

    async def _certificates(self) -> tuple[dict[Audience, ServerTls], dict[Audience, bytes]]:
        """Return the listeners' TLS, and whom callers are to be told to trust."""
        deployment = self._deployment
        root = Path(deployment.certificates_directory)
        if deployment.certificates is Certificates.MOUNTED:
            # cert-manager tells the API server itself.
            return mounted_tls(deployment, root), {Audience.AGENTS: (root / Audience.AGENTS / "ca.crt").read_bytes()}
        authorities = await bootstrap(
            self._objects, deployment.namespace, deployment.authority_secret, datetime.now(UTC)
        )
        trusted = {audience: authorities.certificate(audience) for audience in (Audience.AGENTS, Audience.WEBHOOKS)}
        return issued_tls(deployment, authorities, root), trusted

    async def _keep_label(self) -> None:
        """Carry the label by which kube-scheduler's Service finds the one replica that acts."""
        key, carried = self._settings.key_prefix + ACTIVE_LABEL, None
        while True:
            acts = self.lead.may_act()
            if acts is not carried:
                value = "true" if acts else None
                with suppress(KubeError):
                    await self._objects.label_pod(self._deployment.namespace, self._deployment.host_name, key, value)
                    carried = acts
            await self._clock.sleep(_LABEL_INTERVAL_S)


def listeners_of(deployment: DeploymentSettings, tls: Mapping[Audience, ServerTls]) -> Sequence[Listener]:
    """Return the four listeners; in the paired mode that of the scheduler is on loopback, without TLS."""
    is_paired = deployment.mode is Mode.PAIRED
    return [
        Listener(
            frozenset({Audience.SCHEDULER}),
            _LOOPBACK if is_paired else deployment.host,
            deployment.scheduler_port,
            None if is_paired else tls[Audience.SCHEDULER].context,
        ),
        _listener(Audience.WEBHOOKS, deployment.host, deployment.webhooks_port, tls),
        _listener(Audience.AGENTS, deployment.host, deployment.agents_port, tls),
        _listener(Audience.PEOPLE, deployment.host, deployment.people_port, tls),
    ]


def audiences_with_tls(deployment: DeploymentSettings) -> tuple[Audience, ...]:
    """Return who is served with TLS."""
    audiences = [Audience.WEBHOOKS, Audience.AGENTS]
    if deployment.mode is Mode.STAND_ALONE:
        audiences.append(Audience.SCHEDULER)
    if deployment.people_tls:
        audiences.append(Audience.PEOPLE)
    return tuple(audiences)


def issued_tls(deployment: DeploymentSettings, authorities: Authorities, root: Path) -> dict[Audience, ServerTls]:
    """Return TLS with leaves of our own authorities; the scheduler has to show a certificate of its own."""
    subject = Subject("tangram-extender", ("localhost", _LOOPBACK, *deployment.service_names))
    return {
        audience: ServerTls(
            IssuedLeaf(authorities.pairs[audience], subject, root / audience),
            authorities.certificate(audience) if audience is Audience.SCHEDULER else None,
        )
        for audience in audiences_with_tls(deployment)
    }


def mounted_tls(deployment: DeploymentSettings, root: Path) -> dict[Audience, ServerTls]:
    """Return TLS with leaves that somebody else renews; OSError naming the file that is missing."""
    return {
        audience: ServerTls(
            MountedLeaf(root / audience),
            (root / audience / "ca.crt").read_bytes() if audience is Audience.SCHEDULER else None,
        )
        for audience in audiences_with_tls(deployment)
    }


def _listener(audience: Audience, host: str, port: int, tls: Mapping[Audience, ServerTls]) -> Listener:
    return Listener(frozenset({audience}), host, port, tls[audience].context if audience in tls else None)


def _lead(settings: Settings, kube: KubeClient, clock: Clock, catch_up: Callable[[], Awaitable[None]]) -> Lead:
    deployment = settings.deployment
    terms = LeaseTerms(
        deployment.namespace,
        deployment.lease_name,
        deployment.lease_duration_s,
        deployment.lease_retry_s,
        settings.kube_timeout_s,
    )
    tenure = Tenure(clock, settings.bind_deadline_s, catch_up)
    kind = PairedLease if deployment.mode is Mode.PAIRED else Election
    return kind(kube, terms, clock, tenure, deployment.host_name)


def serve(settings: Settings, kube: KubeClient) -> None:
    """Serve one replica as its deployment says until told to stop."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(Replica(settings, kube).run())
