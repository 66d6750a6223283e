"""Whatever restarts, crashes or loses power: pods keep their devices, the books stay right, and new pods run."""

from collections.abc import Iterator

import pytest

from tests.controlplane.api import ApiError, Json, wait_for
from tests.node.pods import Seen, Workload, allotted, container, pod

_RECOVERED_S = 120.0


class Held:
    """A pod that holds shares of two devices, and what it looked like before something happened."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.before = workload.run(pod("held", container("main", gpu=2, memory=8192)))
        self.seen: Seen = workload.seen(self.before)["main"]

    def check(self, *, restarts: int) -> None:
        """Check that the pod is the same one on the same devices, that the books say so, and that a new pod runs."""
        after = wait_for(
            "the pod runs",
            lambda: self._running(restarts),
            within_s=_RECOVERED_S,
        )
        assert after["metadata"]["uid"] == self.before["metadata"]["uid"]
        assert allotted(after) == allotted(self.before)
        assert self.workload.seen(after)["main"] == self.seen
        wait_for("the webhooks answer", self._create_another, within_s=_RECOVERED_S)
        fresh = self.workload.wait("fresh", within_s=_RECOVERED_S)
        assert self.workload.seen(fresh)["main"].devices == allotted(fresh)["main"]
        assert set(self.workload.books()) >= set(self.seen.devices)

    def _create_another(self) -> bool:
        """Create a pod; a replica that has just died is called by the API server until its readiness says so."""
        try:
            self.workload.create(pod("fresh", container("main", memory=1024)))
        except ApiError as refusal:
            if "failed calling webhook" not in refusal.message:
                raise
            return False
        return True

    def _running(self, restarts: int) -> Json | None:
        found = self.workload.pod("held")
        (status,) = found["status"]["containerStatuses"]
        return found if "running" in status["state"] and status["restartCount"] >= restarts else None


@pytest.fixture
def held(workload: Workload) -> Iterator[Held]:
    yield Held(workload)
    workload.product.wait_ready()


def status_of(found: Json, name: str) -> Json:
    statuses = (*found["status"].get("initContainerStatuses", ()), *found["status"]["containerStatuses"])
    (status,) = [each for each in statuses if each["name"] == name]
    return status


def restarts_of(found: Json, name: str) -> int:
    return int(status_of(found, name)["restartCount"])


def test_container_that_crashes_comes_back_to_its_devices(held: Held) -> None:
    held.workload.product.cluster.kill_container(status_of(held.before, "main")["containerID"])
    held.check(restarts=1)


def test_kubelet_that_crashes_leaves_pods_alone(held: Held) -> None:
    held.workload.product.cluster.restart_kubelet()
    held.check(restarts=0)
    assert restarts_of(held.workload.pod("held"), "main") == 0


def test_containerd_that_crashes_leaves_pods_alone(held: Held) -> None:
    cluster = held.workload.product.cluster
    cluster.programs.containerd.restart()
    cluster.programs.containerd.wait_until(cluster.containerd_answers, within_s=30)
    held.check(restarts=0)
    assert restarts_of(held.workload.pod("held"), "main") == 0


def test_extender_that_crashes_hands_over_and_comes_back(held: Held) -> None:
    product = held.workload.product
    name = product.lease_holder()
    (acting,) = [each for each in product.extenders() if each["metadata"]["name"] == name]
    restarts = restarts_of(acting, "extender")
    product.cluster.kill_container(status_of(acting, "extender")["containerID"])
    held.check(restarts=0)

    def is_back() -> bool:
        (again,) = [each for each in product.extenders() if each["metadata"]["name"] == name]
        return restarts_of(again, "extender") > restarts

    wait_for("the crashed extender is back", is_back, within_s=_RECOVERED_S)


def test_agent_that_crashes_reports_again(held: Held) -> None:
    product = held.workload.product
    restarts = restarts_of(product.agent(), "agent")
    product.cluster.kill_container(status_of(product.agent(), "agent")["containerID"])
    held.check(restarts=0)
    wait_for("the agent is back", lambda: restarts_of(product.agent(), "agent") > restarts, within_s=_RECOVERED_S)
    wait_for("its reports are fresh", lambda: product.fleet()["nodes"][0]["state"] == "fresh")


def test_node_that_reboots_brings_pods_back_on_their_devices(held: Held) -> None:
    held.workload.product.cluster.power_cut()
    held.workload.product.wait_ready()
    held.check(restarts=1)
