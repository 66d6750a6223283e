"""The scheduler configuration of ours is what kube-scheduler understands by it."""

from collections.abc import Iterator

import pytest

from tests.controlplane.api import Json, wait_for
from tests.controlplane.conftest import PlaneFactory
from tests.controlplane.hollow import HollowNodes
from tests.controlplane.kubelet import HollowNode
from tests.controlplane.loopback import free_ports
from tests.controlplane.plane import ControlPlane
from tests.controlplane.scheduler import SCHEDULER_NAME, scheduler_configuration

PODS = "/api/v1/namespaces/default/pods"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/tangram-scheduler"


@pytest.fixture(scope="module")
def plane(start_control_plane: PlaneFactory) -> Iterator[ControlPlane]:
    """A control plane with a controller manager, two schedulers of ours, and an extender that is not there."""
    plane = start_control_plane(controller_manager=True)
    totals = {"tangram.dev/gpu-memory": "81920", "tangram.dev/gpu-compute": "100"}
    (port,) = free_ports(1)
    configuration = scheduler_configuration(f"http://127.0.0.1:{port}/", lease="tangram-scheduler")
    with HollowNodes(plane.endpoint(), [HollowNode("gpu-a", extended=totals)]):
        plane.start_scheduler(configuration, "first")
        plane.start_scheduler(configuration, "second")
        yield plane
        plane.check()


def pod(name: str, limits: dict[str, str]) -> Json:
    container = {"name": "main", "image": "tangram.test/pause:1", "resources": {"limits": limits}}
    return {"metadata": {"name": name}, "spec": {"schedulerName": SCHEDULER_NAME, "containers": [container]}}


def test_one_scheduler_holds_the_lease(plane: ControlPlane) -> None:
    def holder() -> str | None:
        return plane.api.get(LEASE)["spec"]["holderIdentity"] if plane.api.exists(LEASE) else None

    assert wait_for("the lease is held", holder)


def test_pod_without_our_resources_never_meets_the_extender(plane: ControlPlane) -> None:
    plane.api.create(PODS, pod("ordinary", {"cpu": "1"}))
    wait_for("it runs", lambda: plane.api.get(f"{PODS}/ordinary")["status"]["phase"] == "Running")


@pytest.mark.parametrize("resource", ["gpu", "gpu-memory", "gpu-compute"])
def test_pod_with_one_of_our_resources_waits_for_the_extender(plane: ControlPlane, resource: str) -> None:
    plane.api.create(PODS, pod(resource, {f"tangram.dev/{resource}": "1"}))

    def refusal() -> Json | None:
        conditions = plane.api.get(f"{PODS}/{resource}")["status"].get("conditions", [])
        return next((each for each in conditions if each.get("reason") == "SchedulerError"), None)

    assert "/v1/filter" in wait_for("the scheduler says why", refusal)["message"]


def test_more_than_a_node_advertises_never_meets_the_extender(plane: ControlPlane) -> None:
    plane.api.create(PODS, pod("too-much", {"tangram.dev/gpu-memory": "81921"}))

    def refusal() -> Json | None:
        conditions = plane.api.get(f"{PODS}/too-much")["status"].get("conditions", [])
        return next((each for each in conditions if each.get("reason") == "Unschedulable"), None)

    assert "Insufficient tangram.dev/gpu-memory" in wait_for("the scheduler says why", refusal)["message"]


def test_controller_manager_runs_jobs_to_their_end(plane: ControlPlane) -> None:
    annotations = {"tangram.dev/test-run-seconds": "0.2"}
    spec = {**pod("unused", {"cpu": "1"})["spec"], "restartPolicy": "Never"}
    template = {"metadata": {"annotations": annotations}, "spec": spec}
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    plane.api.create(
        jobs, {"metadata": {"name": "batch"}, "spec": {"completions": 3, "parallelism": 2, "template": template}}
    )
    wait_for(
        "three pods succeeded", lambda: plane.api.get(f"{jobs}/batch")["status"].get("succeeded") == 3, within_s=30
    )
