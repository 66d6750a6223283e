"""The whole product on a real control plane: hollow nodes, simulated agents, proxy, extender, scheduler.

    with open_stack(plane, descriptions) as stack:
        stack.create(pod("a", memory=8192))
        stack.wait_phase("a", "Running")
        stack.check_books()

The extender reaches the API server only through the fault proxy, as a user with the rights that it needs and no more.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TypedDict, Unpack, cast

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from node_agent.simulated_description import Description
from tests.controlplane.access import User
from tests.controlplane.agents import Agents
from tests.controlplane.api import Api, Json, PatchKind, wait_for
from tests.controlplane.books import Books, Hardware, annotated, booked, hardware, overfull
from tests.controlplane.hollow import HollowNodes
from tests.controlplane.kubelet import HollowNode
from tests.controlplane.loopback import free_ports
from tests.controlplane.plane import ControlPlane
from tests.controlplane.product import ExtenderProcess
from tests.controlplane.proxy import FaultProxy
from tests.controlplane.scheduler import SCHEDULER_NAME, scheduler_configuration

PREFIX = "tangram.dev"
NAMESPACE = "default"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
EXTENDER = User("tangram-extender", "extender-token")
_RULES = (
    {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
)
_ROLES = "/apis/rbac.authorization.k8s.io/v1"
_EAGER = {"TANGRAM_HEARTBEAT_S": "1", "TANGRAM_ADVERTISE_INTERVAL_S": "0.2", "TANGRAM_WAKE_INTERVAL_S": "1"}
_READY_S = 60.0

IMPATIENT = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 2}
"""A kube-scheduler's settings that suit tests: who was refused is tried again soon."""


class Asked(TypedDict, total=False):
    """What a container asks of ours: MiB, per cent of a device's compute, devices."""

    memory: int
    compute: int
    devices: int


_WATCH_BACK_S = 60.0
"""A watch that is cut again and again comes back after a pause that grows to half a minute."""


@dataclass(frozen=True)
class Stack:
    """Everything that runs, in reach of a test."""

    plane: ControlPlane
    proxy: FaultProxy
    nodes: HollowNodes
    agents: Agents
    extender: ExtenderProcess
    descriptions: tuple[Description, ...]

    @property
    def api(self) -> Api:
        """The API server, not through the proxy."""
        return self.plane.api

    @cached_property
    def hardware(self) -> dict[str, Hardware]:
        """Every device by UUID."""
        return hardware(self.descriptions)

    def fleet(self) -> Json:
        """Return what the extender's `/v1/fleet` says."""
        return self.extender_says("/v1/fleet")

    def extender_says(self, path: str) -> Json:
        """Return what the extender answers to a GET."""
        found: Json = self._answer(path).json()
        return found

    def metric(self, family: str) -> float:
        """Return the sum of all series of a family at the extender's `/metrics`."""
        found = text_string_to_metric_families(self._answer("/metrics").text)
        return sum(each.value for known in found for each in known.samples if each.name == family)

    def _answer(self, path: str) -> httpx2.Response:
        answer = httpx2.get(self.extender.url + path, timeout=10.0, trust_env=False)
        assert answer.is_success, f"{path}: {answer.status_code} {answer.text[:300]}"
        return answer

    def create(self, *manifests: Json) -> None:
        """Create pods."""
        for manifest in manifests:
            self.api.create(PODS, manifest)

    def pods(self) -> list[Json]:
        """Return every pod as it is now."""
        return self.api.items(PODS)

    def pod(self, name: str) -> Json:
        """Return one pod as it is now."""
        return self.api.get(f"{PODS}/{name}")

    def wait_phase(self, name: str, phase: str = "Running", *, within_s: float = 30.0) -> Json:
        """Wait until a pod is in a phase and return it."""

        def probe() -> Json | None:
            found = self.pod(name)
            return found if found["status"].get("phase") == phase else None

        return wait_for(f"pod {name} in phase {phase}", probe, within_s=within_s)

    def wait_all(self, count: int, *, phase: str = "Running", within_s: float = 90.0) -> list[Json]:
        """Wait until `count` pods are in a phase and return them."""

        def probe() -> list[Json] | None:
            found = [each for each in self.pods() if each["status"].get("phase") == phase]
            return found if len(found) == count else None

        return wait_for(f"{count} pods in phase {phase}", probe, within_s=within_s)

    def wait_refusal(self, name: str, text: str, *, within_s: float = 20.0) -> str:
        """Wait until the scheduler says that a pod does not fit, in words with `text` in them; return the words."""

        def probe() -> str | None:
            conditions = self.pod(name)["status"].get("conditions", [])
            found = [str(each["message"]) for each in conditions if each.get("reason") == "Unschedulable"]
            return found[0] if found and text in found[0] else None

        return wait_for(f"pod {name} waits because of {text!r}", probe, within_s=within_s)

    def delete(self, *names: str, grace_s: int | None = 0) -> None:
        """Delete pods; without grace they are gone when this returns."""
        for name in names:
            self.api.delete(f"{PODS}/{name}", grace_s=grace_s)

    def clear(self) -> None:
        """Delete every pod, and wait until nobody holds anything."""
        self.proxy.clear()
        self.delete(*(each["metadata"]["name"] for each in self.pods()))
        wait_for("no pods are left", lambda: not self.pods())
        wait_for("the books are empty", lambda: not booked(self.fleet()), within_s=_WATCH_BACK_S)
        self.nodes.check()
        self.plane.check()

    def check_books(self, *, within_s: float = 15.0) -> Books:
        """Check that the extender's books equal the annotations and that nothing is over; return the books.

        Waits, as a watch needs a moment; that a device is over is never waited out.
        """

        def probe() -> bool:
            told, fleet = annotated(self.pods()), self.fleet()
            assert not overfull(told, self.hardware)
            assert not fleet["overbooked"]
            return told == booked(fleet)

        wait_for("the books equal the annotations", probe, within_s=within_s)
        return annotated(self.pods())


@contextmanager
def open_stack(
    plane: ControlPlane,
    descriptions: Sequence[Description],
    settings: Mapping[str, str] | None = None,
    *,
    with_scheduler: bool = True,
    kubelets: Sequence[HollowNode] | None = None,
) -> Iterator[Stack]:
    """Bring the product up on a control plane that knows the user EXTENDER; nodes advertise when this gives.

    `settings` are environment variables of the extender, over eager ones that suit tests. `kubelets` are the nodes as
    kubelets register them, where their sizes matter or some have no agent.
    """
    allow_extender(plane)
    (port,) = free_ports(1)
    with ExitStack() as started:
        proxy = started.enter_context(FaultProxy(plane.endpoint(EXTENDER)))
        hollow = list(kubelets) if kubelets is not None else [hollow_node(each) for each in descriptions]
        nodes = started.enter_context(HollowNodes(plane.endpoint(), hollow, status_period_s=0.3))
        kubeconfig = plane.kubeconfig(plane.directory / "extender.kubeconfig", proxy.endpoint)
        environment = extender_environment(str(kubeconfig), port) | _EAGER | dict(settings or {})
        extender = started.enter_context(
            ExtenderProcess(extender_command(), environment, port, plane.directory / "extender.log")
        )
        agents = started.enter_context(Agents(descriptions, extender.url))
        stack = Stack(plane, proxy, nodes, agents, extender, tuple(descriptions))
        described = {each.node for each in descriptions}
        wait_for("every node advertises", lambda: _all_advertise(stack, described), within_s=_READY_S)
        if with_scheduler:
            scheduler = plane.start_scheduler(scheduler_configuration(extender.url) | IMPATIENT, "tangram")
            started.callback(scheduler.stop)
        yield stack


def hollow_node(description: Description) -> HollowNode:
    """Return the kubelet of a described node; what NVIDIA's device plugin has there is advertised by it."""
    replicas = {
        row.resource: str(len(row.devices) if row.replicas is None else row.replicas) for row in description.plugin
    }
    return HollowNode(description.node, extended=replicas)


def allow_extender(plane: ControlPlane, user: User = EXTENDER) -> None:
    """Give a user the rights that the extender needs."""
    about = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": user.name}}
    role = {**about, "kind": "ClusterRole", "rules": list(_RULES)}
    plane.api.patch(f"{_ROLES}/clusterroles/{user.name}", role, PatchKind.APPLY)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user.name}
    subject = {"kind": "User", "name": user.name, "apiGroup": "rbac.authorization.k8s.io"}
    binding = {**about, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]}
    plane.api.patch(f"{_ROLES}/clusterrolebindings/{user.name}", binding, PatchKind.APPLY)


def extender_command() -> tuple[str, ...]:
    """Return the command that serves the extender."""
    return sys.executable, "-m", "extender"


def extender_environment(kubeconfig: str, port: int) -> dict[str, str]:
    """Return the settings that say where the extender serves and where its API server is."""
    return {"TANGRAM_KUBECONFIG": kubeconfig, "TANGRAM_PORT": str(port)}


def pod(
    name: str,
    *,
    wishes: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    node: str = "",
    priority_class: str = "",
    **asked: Unpack[Asked],
) -> Json:
    """Return a pod with one container; `asked` are our resources, `wishes` our annotations without the prefix.

    A named `node` is asked for by node selector, so that the scheduler still decides.
    """
    resources = {"memory": "gpu-memory", "compute": "gpu-compute", "devices": "gpu"}
    limits = {f"{PREFIX}/{resources[each]}": str(amount) for each, amount in cast("dict[str, int]", asked).items()}
    marks = {f"{PREFIX}/{key}": value for key, value in (wishes or {}).items()} | dict(annotations or {})
    container = {"name": "main", "image": "tangram.test/pause:1", "resources": {"limits": limits}}
    spec: Json = {"schedulerName": SCHEDULER_NAME, "containers": [container]}
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    if priority_class:
        spec["priorityClassName"] = priority_class
    return {"metadata": {"name": name, "annotations": marks}, "spec": spec}


def advertised(node: Json, amounts: str = "allocatable") -> dict[str, int]:
    """Return what a Node advertises of ours, without the prefix."""
    found = node["status"].get(amounts, {})
    return {name.partition("/")[2]: _count(amount) for name, amount in found.items() if name.startswith(f"{PREFIX}/")}


def _count(quantity: str) -> int:
    return int(quantity[:-1]) * 1000 if quantity.endswith("k") else int(quantity)


def _all_advertise(stack: Stack, described: set[str]) -> bool:
    stack.extender.check()
    nodes = [each for each in stack.api.items("/api/v1/nodes") if each["metadata"]["name"] in described]
    return all(advertised(each).get("gpu-memory", 0) > 0 for each in nodes)
