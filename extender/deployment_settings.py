"""How a replica stands in its cluster: bare for tests and trials, beside a kube-scheduler, or serving one elsewhere."""

from __future__ import annotations

import socket
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"


class Mode(StrEnum):
    """Where kube-scheduler is.

    ``BARE``         one plain listener for everybody, no lease, no tokens: for tests and trials on loopback
    ``PAIRED``       in the same pod; its lease decides which pair acts, and it calls over loopback
    ``STAND_ALONE``  an existing one elsewhere; a lease of ours decides, and it calls over mutual TLS
    """

    BARE = "bare"
    PAIRED = "paired"
    STAND_ALONE = "stand-alone"


class Certificates(StrEnum):
    """Where leaves come from: our own authorities, or directories ``<audience>/tls.crt`` that somebody else renews."""

    SELF_SIGNED = "self-signed"
    MOUNTED = "mounted"


class DeploymentSettings(BaseModel):
    """Settings of a replica in its cluster; the chart fills them in.

    ``namespace``                the replica's own
    ``host_name``                that of the pod: kube-scheduler's lease and ours begin with it
    ``lease_name``               kube-scheduler's in the paired mode, ours in the stand-alone mode
    ``lease_duration_s``         for which a renewal of the lease holds
    ``scheduler_port``           of the four verbs; on loopback in the paired mode
    ``host``                     address of the listeners that are not for loopback only
    ``certificates_directory``   memory-backed and ours (self-signed), or the mounted Secrets, one folder an audience
    ``service_names``            names under which callers reach the replica
    ``people_tls``               whether page, API, probes and metrics are served with TLS
    ``agent_namespace``, ``agent_account``, ``viewer_accounts``  whose tokens may report, and see pod names
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Mode = Mode.BARE
    namespace: str = Field(default="tangram-system", pattern=_NAME, max_length=63)
    host_name: str = Field(default_factory=socket.gethostname)
    lease_name: str = Field(default="tangram-scheduler", pattern=_NAME, max_length=253)
    lease_duration_s: int = Field(default=10, ge=5, le=120)
    lease_retry_s: float = Field(default=1.0, gt=0, le=30)

    host: str = "0.0.0.0"  # noqa: S104 - a pod's address is not known before; the chart's NetworkPolicy narrows it
    scheduler_port: int = Field(default=8270, ge=0, le=65_535)
    webhooks_port: int = Field(default=8271, ge=0, le=65_535)
    agents_port: int = Field(default=8272, ge=0, le=65_535)
    people_port: int = Field(default=8273, ge=0, le=65_535)

    certificates: Certificates = Certificates.SELF_SIGNED
    certificates_directory: str = "/run/tangram/certificates"
    authority_secret: str = Field(default="tangram-authorities", pattern=_NAME, max_length=253)
    trust_config_map: str = Field(default="tangram-trust", pattern=_NAME, max_length=253)
    webhook_configuration: str = Field(default="tangram", pattern=_NAME, max_length=253)
    service_names: tuple[str, ...] = ()
    people_tls: bool = True

    agent_namespace: str = Field(default="tangram-agents", pattern=_NAME, max_length=63)
    agent_account: str = Field(default="tangram-agent", pattern=_NAME, max_length=253)
    viewer_accounts: tuple[str, ...] = ()
