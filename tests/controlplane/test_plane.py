"""The control plane and its hollow nodes behave as real ones where the product's tests lean on it."""

from collections.abc import Iterator

import pytest

from tests.controlplane.api import Api, ApiError, Json, PatchKind, wait_for
from tests.controlplane.hollow import HollowNodes
from tests.controlplane.kubelet import RUN_SECONDS, STOP_SECONDS, HollowNode
from tests.controlplane.plane import ControlPlane

PODS = "/api/v1/namespaces/default/pods"
MEMORY = "tangram.dev/gpu-memory"


@pytest.fixture(scope="module")
def nodes(control_plane: ControlPlane) -> Iterator[HollowNodes]:
    fleet = [
        HollowNode("gpu-a", labels={"zone": "a"}),
        HollowNode("gpu-b", labels={"zone": "b"}, extended={MEMORY: "100"}),
    ]
    with HollowNodes(control_plane.endpoint(), fleet, status_period_s=0.2) as hollow:
        yield hollow


@pytest.fixture
def api(control_plane: ControlPlane, nodes: HollowNodes) -> Iterator[Api]:
    yield control_plane.api
    for pod in control_plane.api.items(PODS):
        control_plane.api.delete(f"{PODS}/{pod['metadata']['name']}", grace_s=0)
    wait_for("no pods left", lambda: not control_plane.api.items(PODS))
    nodes.check()
    control_plane.check()


def pod(name: str, *, annotations: dict[str, str] | None = None, memory: int = 0, **spec: object) -> Json:
    resources = {"limits": {MEMORY: str(memory)}} if memory else {}
    container = {"name": "main", "image": "tangram.test/pause:1", "resources": resources}
    return {"metadata": {"name": name, "annotations": annotations or {}}, "spec": {"containers": [container], **spec}}


def phase(api: Api, name: str, expected: str) -> Json:
    def probe() -> Json | None:
        found = api.get(f"{PODS}/{name}")
        return found if found["status"].get("phase") == expected else None

    return wait_for(f"pod {name} in phase {expected}", probe)


def gone(api: Api, name: str) -> bool:
    return wait_for(f"pod {name} is gone", lambda: not api.exists(f"{PODS}/{name}"))


def test_pod_bound_by_the_stock_scheduler_runs(api: Api) -> None:
    api.create(PODS, pod("plain", nodeSelector={"zone": "b"}))
    running = phase(api, "plain", "Running")
    assert running["spec"]["nodeName"] == "gpu-b"
    assert running["status"]["podIP"]
    assert running["status"]["containerStatuses"][0]["ready"]
    conditions = {each["type"]: each["status"] for each in running["status"]["conditions"]}
    assert conditions["PodScheduled"] == conditions["Ready"] == "True"


def test_binding_writes_node_and_annotations_at_once(api: Api) -> None:
    made = api.create(PODS, pod("bound", schedulerName="nobody", annotations={"tangram.dev/forged": "yes"}))
    metadata = {"name": "bound", "uid": made["metadata"]["uid"], "annotations": {"tangram.dev/allocation": "{}"}}
    answer = api.create(f"{PODS}/bound/binding", {"metadata": metadata, "target": {"kind": "Node", "name": "gpu-a"}})
    assert answer["kind"] == "Status"
    running = phase(api, "bound", "Running")
    assert running["spec"]["nodeName"] == "gpu-a"
    assert running["metadata"]["annotations"] == {"tangram.dev/allocation": "{}", "tangram.dev/forged": "yes"}


def test_binding_for_another_uid_is_refused(api: Api) -> None:
    api.create(PODS, pod("reborn", schedulerName="nobody"))
    binding = {"metadata": {"name": "reborn", "uid": "other"}, "target": {"kind": "Node", "name": "gpu-a"}}
    with pytest.raises(ApiError) as refusal:
        api.create(f"{PODS}/reborn/binding", binding)
    assert refusal.value.status == 409


def test_deleted_pod_stays_until_its_containers_have_stopped(api: Api) -> None:
    api.create(PODS, pod("slow", annotations={STOP_SECONDS: "0.6"}))
    phase(api, "slow", "Running")
    api.delete(f"{PODS}/slow")
    assert api.get(f"{PODS}/slow")["metadata"]["deletionTimestamp"]
    assert gone(api, "slow")


def test_grace_period_bounds_the_time_to_stop(api: Api) -> None:
    api.create(PODS, pod("stubborn", annotations={STOP_SECONDS: "600"}))
    phase(api, "stubborn", "Running")
    api.delete(f"{PODS}/stubborn", grace_s=1)
    assert gone(api, "stubborn")


def test_pod_with_an_end_succeeds_and_frees_its_part(api: Api) -> None:
    api.create(PODS, pod("job", memory=100, annotations={RUN_SECONDS: "0.2"}, restartPolicy="Never"))
    phase(api, "job", "Succeeded")
    api.create(PODS, pod("next", memory=100))
    assert phase(api, "next", "Running")["spec"]["nodeName"] == "gpu-b"


def test_pod_over_an_advertised_total_fails_as_kubelet_says(api: Api) -> None:
    api.create(PODS, pod("first", memory=60, nodeName="gpu-b"))
    phase(api, "first", "Running")
    api.create(PODS, pod("second", memory=60, nodeName="gpu-b"))
    assert phase(api, "second", "Failed")["status"]["reason"] == f"OutOf{MEMORY}"


def test_pod_asking_for_a_resource_that_nobody_advertises_is_admitted(api: Api) -> None:
    api.create(PODS, pod("unknown", memory=60, nodeName="gpu-a"))
    phase(api, "unknown", "Running")


def test_capacity_is_mirrored_into_allocatable_and_zeroed_by_registering_anew(api: Api, nodes: HollowNodes) -> None:
    path = "/api/v1/nodes/gpu-a"
    resource = "tangram.dev/gpu"
    added = {"op": "add", "path": "/status/capacity/tangram.dev~1gpu", "value": "200"}
    api.patch(f"{path}/status", [added], PatchKind.JSON)
    wait_for("allocatable follows", lambda: api.get(path)["status"]["allocatable"].get(resource) == "200")
    nodes.reregister("gpu-a")
    assert api.get(path)["status"]["capacity"][resource] == "0"
    api.patch(f"{path}/status", [{"op": "remove", "path": added["path"]}], PatchKind.JSON)
    wait_for("allocatable drops it", lambda: resource not in api.get(path)["status"]["allocatable"])


def test_nodes_come_and_go(api: Api, nodes: HollowNodes) -> None:
    nodes.add(HollowNode("late", labels={"zone": "late"}))
    api.create(PODS, pod("early-bird", nodeSelector={"zone": "late"}))
    phase(api, "early-bird", "Running")
    nodes.remove("late")
    assert not api.exists("/api/v1/nodes/late")


def test_service_account_is_known_by_its_token(control_plane: ControlPlane, api: Api) -> None:
    endpoint = control_plane.service_account("default", "agent")
    api.create(PODS, pod("agent", nodeName="gpu-a", serviceAccountName="agent"))
    token = control_plane.token("default", "agent", audience="tangram", pod="agent")
    review = {"spec": {"token": token, "audiences": ["tangram"]}}
    status = api.create("/apis/authentication.k8s.io/v1/tokenreviews", review)["status"]
    assert status["user"]["username"] == "system:serviceaccount:default:agent"
    assert status["user"]["extra"]["authentication.kubernetes.io/node-name"] == ["gpu-a"]
    with Api(endpoint) as agent, pytest.raises(ApiError) as refusal:
        agent.items("/api/v1/nodes")
    assert refusal.value.status == 403


def test_everything_goes_on_after_the_api_server_was_killed(control_plane: ControlPlane, api: Api) -> None:
    control_plane.api_server.restart()
    control_plane.wait_ready()
    api.create(PODS, pod("survivor"))
    phase(api, "survivor", "Running")
    api.delete(f"{PODS}/survivor")
    assert gone(api, "survivor")
