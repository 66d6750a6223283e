"""Serve the extender in a cluster: ``python -m extender``."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

from extender.app import Surroundings, create_app
from extender.authorities import UnusableAuthority
from extender.deployment_settings import Mode
from extender.errors import ExtenderError, KubeUnreachable
from extender.kube import KubeClient, KubeOptions
from extender.logs import set_up_logs
from extender.serving import server_for
from extender.settings import InvalidSettings, Settings, load_settings
from extender.transport import Limits

_WRONG_SETTINGS = 2
_NO_CLUSTER = 3


def connect(settings: Settings) -> KubeClient:
    """Return a client of the API server that the settings name, by default that of this pod's own cluster.

    Raises KubeUnreachable when there is no such configuration.
    """
    options = options_of(settings)
    if settings.kubeconfig:
        return KubeClient.from_kubeconfig(Path(settings.kubeconfig), options=options)
    if settings.api_server:
        return KubeClient.from_url(settings.api_server, options=options)
    return KubeClient.in_cluster(options)


def options_of(settings: Settings) -> KubeOptions:
    """Return how the API server is talked to: one call within ``kube_timeout_s``, a page of a list has longer."""
    limits = Limits(connect_timeout_s=settings.kube_timeout_s, read_timeout_s=settings.kube_timeout_s)
    return KubeOptions(limits=limits, strict_x509=settings.kube_strict_x509)


_GC_THRESHOLDS = 20_000, 20, 50
"""What a report brings lives until the next one; the default of 700 objects would look at it over and over, in vain."""


def main() -> int:
    """Read the settings, connect to the API server of this pod's cluster and serve until told to stop."""
    try:
        settings = load_settings()
    except InvalidSettings as error:
        for problem in error.problems:
            print(f"settings: {problem}", file=sys.stderr)
        return _WRONG_SETTINGS
    set_up_logs(settings.log_level)
    gc.set_threshold(*_GC_THRESHOLDS)
    try:
        kube = connect(settings)
    except KubeUnreachable as error:
        print(f"API server: {error}", file=sys.stderr)
        return _NO_CLUSTER
    if settings.deployment.mode is not Mode.BARE:
        return _serve_replica(settings, kube)
    server_for(create_app(settings, Surroundings(kube, kube)), settings).run()
    return 0


def _serve_replica(settings: Settings, kube: KubeClient) -> int:
    """Serve with lease, identities and certificates; what stops the start is told in one line."""
    from extender.deployment import serve

    try:
        serve(settings, kube)
    except (ExtenderError, UnusableAuthority, OSError) as error:
        print(f"start: {error}", file=sys.stderr)
        return _NO_CLUSTER
    return 0


if __name__ == "__main__":
    sys.exit(main())
