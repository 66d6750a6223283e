"""The KubeSchedulerConfiguration that goes with the extender, from constants that the chart is tested against.

``python -m extender.scheduler_config`` prints the one for an existing kube-scheduler (stand-alone mode). Facts behind
the values: extender-protocol notes, sections 2 and 7.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

import yaml

from scoring.catalog import PRODUCTS, parse_mig_profile

SCHEDULER_NAME = "tangram-scheduler"
IN_TREE_POINTS = 1400
"""Most that in-tree plugins can tell two nodes apart by: weights 3, 2, 2, 2, 2, 1, 1, 1 times 100."""

POINTS_PER_LEVEL = 10
"""kube-scheduler multiplies each of our levels 0 to 10 by this and by the weight."""

WEIGHT = 150
"""One level of ours, 1,500 points, outweighs everything in-tree: which node is taken is ours to say (ADR 0004)."""

HTTP_TIMEOUT_S = 5
"""Above the bind deadline (``settings.bind_deadline_s``), so that a bind's outcome is told, not guessed."""

PERCENTAGE_OF_NODES_TO_SCORE = 100
"""Less would hide the best node, or every node that fits, before the extender is asked."""

LEASE_DURATION_S = 10
RENEW_DEADLINE_S = 6
RETRY_PERIOD_S = 1
"""A pair that dies is followed within 20 s: duration, one retry, and the bind deadline of the pair before."""

VERBS = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "preemptVerb": "preempt", "bindVerb": "bind"}
OWN_RESOURCES = {"gpu": True, "gpu-memory": False, "gpu-compute": False}
"""Our resources, and whether kube-scheduler leaves the counting to us."""

PLUGIN_RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpu.shared")

Configuration = dict[str, object]


def mig_resources() -> tuple[str, ...]:
    """Return NVIDIA's resource names of every MIG profile in the catalogue, sorted; ``+`` becomes ``.`` there."""
    names = {name for product in PRODUCTS for name, _ in product.mig_profiles}
    known = [profile.name for profile in map(parse_mig_profile, names) if profile is not None]
    return tuple(sorted(f"nvidia.com/mig-{name.replace('+', '.')}" for name in known))


def managed_resources(prefix: str) -> list[dict[str, object]]:
    """Return which resources make a pod the extender's business; NVIDIA's are counted by kube-scheduler itself."""
    own = [{"name": f"{prefix}/{name}", "ignoredByScheduler": ignored} for name, ignored in OWN_RESOURCES.items()]
    plugin = [{"name": name, "ignoredByScheduler": False} for name in (*PLUGIN_RESOURCES, *mig_resources())]
    return [*own, *plugin]


def extender_entry(
    url: str, prefix: str, tls: Mapping[str, object] | None = None, *, every_pod: bool = False
) -> Configuration:
    """Return one entry of ``extenders``; ``url`` ends before ``/v1``, ``tls`` is the ``tlsConfig`` of an https one.

    With ``every_pod`` it is asked about pods without GPUs too.
    """
    entry: Configuration = {
        "urlPrefix": f"{url.rstrip('/')}/v1",
        **VERBS,
        "weight": WEIGHT,
        "httpTimeout": f"{HTTP_TIMEOUT_S}s",
        "nodeCacheCapable": True,
        "ignorable": False,
    }
    if not every_pod:
        entry["managedResources"] = managed_resources(prefix)
    return entry if tls is None else {**entry, "enableHTTPS": True, "tlsConfig": dict(tls)}


def profile(scheduler_name: str, ignored: Sequence[str] = ()) -> Configuration:
    """Return a profile that looks at every node and does not count ``ignored`` resources.

    Pods without GPUs are spread where kube-scheduler scores them, which is its own default: packed, they would take the
    CPU of nodes whose GPUs are free (docs/placement.md, "Pods without GPUs").
    """
    made: Configuration = {
        "schedulerName": scheduler_name,
        "percentageOfNodesToScore": PERCENTAGE_OF_NODES_TO_SCORE,
    }
    if ignored:
        made["pluginConfig"] = [{"name": "NodeResourcesFit", "args": {"ignoredResources": list(ignored)}}]
    return made


def leader_election(namespace: str, name: str) -> Configuration:
    """Return the election by which pairs take turns."""
    return {
        "leaderElect": True,
        "resourceLock": "leases",
        "resourceNamespace": namespace,
        "resourceName": name,
        "leaseDuration": f"{LEASE_DURATION_S}s",
        "renewDeadline": f"{RENEW_DEADLINE_S}s",
        "retryPeriod": f"{RETRY_PERIOD_S}s",
    }


def scheduler_configuration(
    url: str,
    *,
    prefix: str = "tangram.dev",
    scheduler_name: str = SCHEDULER_NAME,
    election: Mapping[str, object] | None = None,
    tls: Mapping[str, object] | None = None,
    every_pod: bool = False,
) -> Configuration:
    """Return the whole configuration; without ``election`` that part is left to whoever runs the scheduler.

    With ``every_pod`` the extender places pods without GPUs too. kube-scheduler then learns from the profile, no longer
    from ``managedResources``, what it must not count.
    """
    configuration: Configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
    }
    if election is not None:
        configuration["leaderElection"] = dict(election)
    ignored = [f"{prefix}/{name}" for name, is_ours in OWN_RESOURCES.items() if is_ours] if every_pod else []
    configuration["profiles"] = [profile(scheduler_name, ignored)]
    configuration["extenders"] = [extender_entry(url, prefix, tls, every_pod=every_pod)]
    return configuration


def stand_alone_tls(directory: str, server_name: str) -> Configuration:
    """Return the TLS settings of an existing kube-scheduler whose certificates lie in ``directory``."""
    return {
        "insecure": False,
        "serverName": server_name,
        "certFile": f"{directory}/tls.crt",
        "keyFile": f"{directory}/tls.key",
        "caFile": f"{directory}/ca.crt",
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the configuration to add to an existing kube-scheduler."""
    parser = argparse.ArgumentParser(description="Print the KubeSchedulerConfiguration for the stand-alone mode")
    parser.add_argument("--url", required=True, help="https address of the extender, without a path")
    parser.add_argument("--server-name", default="tangram-scheduler.tangram-system.svc")
    parser.add_argument(
        "--certificates", default="/etc/kubernetes/tangram", help="directory of tls.crt, tls.key, ca.crt"
    )
    parser.add_argument("--scheduler-name", default=SCHEDULER_NAME)
    parser.add_argument("--prefix", default="tangram.dev")
    parser.add_argument(
        "--every-pod", action="store_true", help="have it place pods without GPUs too: every pod of every profile"
    )
    chosen = parser.parse_args(arguments)
    configuration = scheduler_configuration(
        chosen.url,
        prefix=chosen.prefix,
        scheduler_name=chosen.scheduler_name,
        tls=stand_alone_tls(chosen.certificates, chosen.server_name),
        every_pod=chosen.every_pod,
    )
    print(yaml.safe_dump(configuration, sort_keys=False), end="")


if __name__ == "__main__":
    main()
