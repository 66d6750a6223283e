"""The KubeSchedulerConfiguration that pairs kube-scheduler with the extender, as a plain object."""

from typing import Any

from extender.scheduler_config import managed_resources

Configuration = dict[str, Any]

SCHEDULER_NAME = "tangram-scheduler"
RESOURCE_PREFIX = "tangram.dev"


def plain_configuration(scheduler_name: str = "default-scheduler") -> Configuration:
    """Describe a stock scheduler without extenders."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": scheduler_name}],
    }


def scheduler_configuration(
    extender_url: str,
    *,
    scheduler_name: str = SCHEDULER_NAME,
    weight: int = 20,
    http_timeout: str = "5s",
    resource_prefix: str = RESOURCE_PREFIX,
    lease: str | None = None,
    tls: dict[str, str] | None = None,
) -> Configuration:
    """Describe a scheduler that asks the extender at `extender_url` for pods with our resources or NVIDIA's.

    `lease` names the lease of leader election (none when None); `tls` is the extender's `tlsConfig` for an https URL.
    The numbers that kube-scheduler counts itself are memory and compute; the number of devices is the extender's.
    """
    configuration = plain_configuration(scheduler_name)
    configuration["leaderElection"] = _leader_election(lease)
    configuration["profiles"] = [_packing_profile(scheduler_name)]
    extender = {
        "urlPrefix": f"{extender_url.rstrip('/')}/v1",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "bindVerb": "bind",
        "weight": weight,
        "httpTimeout": http_timeout,
        "nodeCacheCapable": True,
        "ignorable": False,
        "managedResources": managed_resources(resource_prefix),
    }
    if tls is not None:
        extender |= {"enableHTTPS": True, "tlsConfig": tls}
    configuration["extenders"] = [extender]
    return configuration


def _leader_election(lease: str | None) -> Configuration:
    if lease is None:
        return {"leaderElect": False}
    return {"leaderElect": True, "resourceName": lease, "resourceNamespace": "kube-system"}


def _packing_profile(scheduler_name: str) -> Configuration:
    resources = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
    fit = {"scoringStrategy": {"type": "MostAllocated", "resources": resources}}
    return {
        "schedulerName": scheduler_name,
        "percentageOfNodesToScore": 100,
        "pluginConfig": [{"name": "NodeResourcesFit", "args": fit}],
    }
