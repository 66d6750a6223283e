"""What a kubelet would write: node objects, pod statuses, and its admission of pods against the node's totals.

Pure functions over API objects; `hollow` does the talking. Two annotations let a test say what the containers do:
`tangram.dev/test-run-seconds` (they end well after that long; without it they run for ever) and
`tangram.dev/test-stop-seconds` (how long they take to end when asked to, at most the grace period; 0 by default).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal

from kubernetes.utils.quantity import parse_quantity

from tests.controlplane.api import Json

RUN_SECONDS = "tangram.dev/test-run-seconds"
STOP_SECONDS = "tangram.dev/test-stop-seconds"
_TERMINAL = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class HollowNode:
    """One node to pretend; amounts are Kubernetes quantities, `extended` are extended resources it starts with."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    cpu: str = "64"
    memory: str = "512Gi"
    pods: int = 250
    extended: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Json, ...] = ()


def node_manifest(node: HollowNode) -> Json:
    """Return the Node object that a kubelet registers itself with."""
    amounts = {"cpu": node.cpu, "memory": node.memory, "pods": str(node.pods), **node.extended}
    labels = {"kubernetes.io/hostname": node.name, "kubernetes.io/os": "linux", **node.labels}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": labels},
        "spec": {"taints": list(node.taints)},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [ready_condition()],
            "addresses": [{"type": "Hostname", "address": node.name}],
        },
    }


def ready_condition() -> Json:
    """Return the Ready condition of a healthy node, as of now."""
    return {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": _now()}


def is_extended(resource: str) -> bool:
    """Tell whether a resource name is an extended one: with a domain that is not Kubernetes' own."""
    domain, slash, _ = resource.partition("/")
    return bool(slash) and not domain.endswith("kubernetes.io")


def mirrored_allocatable(status: Json) -> dict[str, str | None]:
    """Return the changes of `allocatable` that a status sync makes: it follows capacity for extended resources.

    A resource that left the capacity is given as None, which deletes it in a merge patch.
    """
    capacity, allocatable = status.get("capacity", {}), status.get("allocatable", {})
    changes: dict[str, str | None] = {
        name: amount for name, amount in capacity.items() if is_extended(name) and allocatable.get(name) != amount
    }
    return changes | {name: None for name in allocatable if is_extended(name) and name not in capacity}


def effective_requests(spec: Json) -> dict[str, Decimal]:
    """Return what a pod asks for in all: Kubernetes' arithmetic over containers, init containers and sidecars.

    Init containers run one after the other, beside the sidecars started before them; sidecars run on to the end.
    """
    sidecars: dict[str, Decimal] = {}
    peak: dict[str, Decimal] = {}
    for container in spec.get("initContainers", []):
        asked = _requests(container)
        if container.get("restartPolicy") == "Always":
            sidecars = _sum(sidecars, asked)
            peak = _largest(peak, sidecars)
        else:
            peak = _largest(peak, _sum(sidecars, asked))
    running = sidecars
    for container in spec["containers"]:
        running = _sum(running, _requests(container))
    return _sum(_largest(peak, running), {name: _amount(amount) for name, amount in spec.get("overhead", {}).items()})


def shortage(
    asked: Mapping[str, Decimal], admitted: Iterable[Mapping[str, Decimal]], allocatable: Mapping[str, str]
) -> str | None:
    """Return the first resource that would be over the node's total, or None; `admitted` are the pods that hold some.

    Extended resources that the node does not advertise are not looked at, as in kubelet's admission.
    """
    others = list(admitted)
    if len(others) + 1 > _amount(allocatable.get("pods", "0")):
        return "pods"
    for name, amount in sorted(asked.items()):
        if amount == 0 or (is_extended(name) and name not in allocatable):
            continue
        used = sum((other.get(name, Decimal(0)) for other in others), Decimal(0))
        if used + amount > _amount(allocatable.get(name, "0")):
            return name
    return None


def is_terminal(pod: Json) -> bool:
    """Tell whether a pod's containers have ended for good."""
    return pod.get("status", {}).get("phase") in _TERMINAL


def seconds(pod: Json, annotation: str) -> float | None:
    """Read one of the two annotations; None when the pod does not carry it."""
    value = pod["metadata"].get("annotations", {}).get(annotation)
    return None if value is None else float(value)


def running_status(pod: Json, address: str) -> Json:
    """Return the status of a pod whose containers all run."""
    spec, now = pod["spec"], _now()
    started, ended = {"running": {"startedAt": now}}, _terminated(now)
    sidecar = {"restartPolicy": "Always"}.items()
    first = [(each, started if sidecar <= each.items() else ended) for each in spec.get("initContainers", [])]
    return {
        "phase": "Running",
        "startTime": now,
        "hostIP": "127.0.0.1",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [_condition(kind, "True") for kind in ("Initialized", "ContainersReady", "Ready")],
        "initContainerStatuses": [_container_status(each, state) for each, state in first],
        "containerStatuses": [_container_status(each, started) for each in spec["containers"]],
    }


def ended_status(pod: Json) -> Json:
    """Return the status of a pod whose containers all ended with code 0."""
    ended = _terminated(_now())
    return {
        "phase": "Succeeded",
        "conditions": [_condition(kind, "False", "PodCompleted") for kind in ("ContainersReady", "Ready")],
        "containerStatuses": [_container_status(each, ended) for each in pod["spec"]["containers"]],
    }


def rejected_status(resource: str) -> Json:
    """Return the status of a pod that the node's totals do not allow; such a pod never runs."""
    message = f"Pod was rejected: Node didn't have enough resource: {resource}"
    return {"phase": "Failed", "reason": f"OutOf{resource}", "message": message, "startTime": _now()}


def _amount(quantity: str) -> Decimal:
    return Decimal(parse_quantity(quantity))  # type: ignore[no-untyped-call]


def _requests(container: Json) -> dict[str, Decimal]:
    return {name: _amount(amount) for name, amount in container.get("resources", {}).get("requests", {}).items()}


def _sum(left: Mapping[str, Decimal], right: Mapping[str, Decimal]) -> dict[str, Decimal]:
    return {name: left.get(name, Decimal(0)) + right.get(name, Decimal(0)) for name in {*left, *right}}


def _largest(left: Mapping[str, Decimal], right: Mapping[str, Decimal]) -> dict[str, Decimal]:
    return {name: max(left.get(name, Decimal(0)), right.get(name, Decimal(0))) for name in {*left, *right}}


def _container_status(container: Json, state: Json) -> Json:
    running = "running" in state
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": running,
        "started": running,
        "restartCount": 0,
        "state": {"running": None, "terminated": None, **state},
    }


def _terminated(now: str) -> Json:
    return {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}}


def _condition(kind: str, status: str, reason: str = "") -> Json:
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": _now()}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
