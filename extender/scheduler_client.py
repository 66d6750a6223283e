"""Print the Secret with which an existing kube-scheduler proves who it is (stand-alone mode).

``python -m extender.scheduler_client`` runs in the extender's pod, whose account may read the authorities; the page
docs/operations.md says where the three files go.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import yaml

from extender.authorities import Subject, issue
from extender.certificates import Audience, Authorities, bootstrap
from extender.kube import KubeClient
from extender.kubeobjects import KubeObjects
from extender.settings import load_settings

CLIENT_DAYS = 365
SECRET_NAME = "tangram-scheduler-client"  # noqa: S105 - a name


def client_secret(authorities: Authorities, now: datetime, lifetime: timedelta) -> dict[str, object]:
    """Return a Secret with a client certificate of the scheduler's authority, its key, and that authority."""
    authority = authorities.pairs[Audience.SCHEDULER]
    leaf = issue(authority, Subject("kube-scheduler", is_client=True), now, lifetime)
    entries = {"tls.crt": leaf.certificate_pem, "tls.key": leaf.key_pem, "ca.crt": authority.certificate_pem}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET_NAME},
        "type": "kubernetes.io/tls",
        "data": {name: base64.b64encode(content).decode() for name, content in entries.items()},
    }


async def _authorities() -> Authorities:
    deployment = load_settings().deployment
    kube = KubeClient.in_cluster()
    try:
        objects = KubeObjects(kube)
        return await bootstrap(objects, deployment.namespace, deployment.authority_secret, datetime.now(UTC))
    finally:
        await kube.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the Secret as YAML."""
    parser = argparse.ArgumentParser(description="Print the Secret with kube-scheduler's client certificate")
    parser.add_argument("--days", type=int, choices=range(1, 3651), metavar="1..3650", default=CLIENT_DAYS)
    chosen = parser.parse_args(arguments)
    secret = client_secret(asyncio.run(_authorities()), datetime.now(UTC), timedelta(days=chosen.days))
    print(yaml.safe_dump(secret, sort_keys=False), end="")


if __name__ == "__main__":
    main()
