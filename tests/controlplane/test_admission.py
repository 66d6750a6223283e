"""The door on a real kube-apiserver: webhooks over TLS and policies together, with users, controllers and outages."""

import base64
import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

import httpx2
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from extender.podspec import pod_request
from tests.controlplane.api import Api, ApiError, Json, PatchKind, trust, wait_for
from tests.controlplane.build import Binaries
from tests.controlplane.conftest import PlaneFactory
from tests.controlplane.door import (
    WebhookServer,
    install,
    mutating,
    render,
    validating,
    webhooks,
)
from tests.controlplane.plane import ControlPlane
from tests.support.fleets import A100, T4, fleet, gpu
from tests.support.reviews import a_door, decoded

PREFIX = "tangram.dev/"
PODS = "/api/v1/namespaces/ml/pods"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
ALL = {"name": VISIBLE, "value": "all"}
INJECT_PATH = "/inject"


@dataclass(frozen=True)
class Front:
    """A control plane with the whole door before it."""

    plane: ControlPlane
    server: WebhookServer

    @property
    def api(self) -> Api:
        return self.plane.api


def with_injector(app: ASGIApp) -> ASGIApp:
    """Return the webhooks and beside them one of another project, which adds a container to pods labelled `mesh`."""

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != INJECT_PATH:
            await app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        request = json.loads(body)["request"]
        response: Json = {"uid": request["uid"], "allowed": True}
        names = [container["name"] for container in request["object"]["spec"]["containers"]]
        if "mesh" not in names:
            step = {
                "op": "add",
                "path": "/spec/containers/-",
                "value": {"name": "mesh", "image": "tangram.test/mesh:1"},
            }
            response |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps([step]).encode()).decode()}
        answer = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    return route


def injecting(server: WebhookServer) -> Json:
    webhook = {
        "name": "inject.mesh.example",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "objectSelector": {"matchLabels": {"mesh": "yes"}},
        "clientConfig": {
            "url": server.url(INJECT_PATH),
            "caBundle": base64.b64encode(server.authority).decode(),
        },
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    }
    return {  # Webhooks run in the order of their configurations' names: this one comes after ours.
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "zz-mesh"},
        "webhooks": [webhook],
    }


@pytest.fixture(scope="module")
def front(
    start_control_plane: PlaneFactory,
    control_plane_binaries: Binaries,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Front]:
    plane = start_control_plane(controller_manager=True)
    api = plane.api
    for namespace in ("ml", "batch"):
        api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
        wait_for("a service account", lambda account=account: api.exists(account))
    api.create("/apis/node.k8s.io/v1/runtimeclasses", {"metadata": {"name": "nvidia"}, "handler": "nvidia"})
    values = {"admission": {"routedNamespaces": ["batch"], "routedTaints": ["nvidia.com/gpu"]}}
    policies, conditions = render(control_plane_binaries.path("helm"), tmp_path_factory.mktemp("chart"), values)
    known = fleet(a=[gpu(T4), gpu(T4)], b=[gpu(A100)])
    door = a_door(known, routed_namespaces=("batch",), routed_taints=("nvidia.com/gpu",))
    with WebhookServer(with_injector(webhooks(door)), tmp_path_factory.mktemp("webhook")) as server:
        ours = [mutating(server, **snake(conditions)), validating(server, conditions["asksOurs"])]
        install(api, [*policies, *ours, injecting(server)])
        front = Front(plane, server)
        wait_for("the door stands", lambda: stands(api))
        yield front
        plane.check()


def snake(conditions: dict[str, str]) -> dict[str, str]:
    return {"asks_ours": conditions["asksOurs"], "is_routed": conditions["isRouted"]}


def stands(api: Api) -> bool:
    """Tell whether webhooks and policies are in force."""
    try:
        found = api.request("POST", PODS, body=pod("probe", gpu="1"), query={"dryRun": "All"})
        api.request("POST", PODS, body=pod("probe", env=[ALL]), query={"dryRun": "All"})
    except ApiError as refusal:
        return "ValidatingAdmissionPolicy" in refusal.message and bool(found)
    return False


@pytest.fixture
def api(front: Front) -> Iterator[Api]:
    yield front.api
    for found in front.api.items(PODS):
        with contextlib.suppress(ApiError):  # Its controller may be faster.
            front.api.delete(f"{PODS}/{found['metadata']['name']}", grace_s=0)


def template(env: list[Json] | None = None, annotations: Json | None = None, **rows: str) -> Json:
    limits = {f"{PREFIX}{row.replace('_', '-')}": amount for row, amount in rows.items()}
    container: Json = {"name": "main", "image": "tangram.test/app:1", "resources": {"limits": limits}}
    if env:
        container["env"] = env
    return {
        "metadata": {"labels": {"app": "x"}, "annotations": annotations or {}},
        "spec": {"containers": [container], "tolerations": []},
    }


def pod(name: str, **about: object) -> Json:
    built = template(**about)  # type: ignore[arg-type]
    built["metadata"]["name"] = name
    return built


def variables(found: Json) -> dict[str, str]:
    """Return what each container's NVIDIA_VISIBLE_DEVICES says: a literal, or the field that it shows."""
    containers = found["spec"]["containers"] + found["spec"].get("initContainers", [])
    said = {}
    for container in containers:
        (variable,) = [each for each in container.get("env", []) if each["name"] == VISIBLE]
        said[container["name"]] = variable.get("value") or variable["valueFrom"]["fieldRef"]["fieldPath"]
    return said


def is_of_ours(found: Json) -> bool:
    spec = found["spec"]
    return (
        spec["schedulerName"] == "tangram-scheduler"
        and spec["runtimeClassName"] == "nvidia"
        and found["metadata"]["labels"][f"{PREFIX}managed"] == "true"
        and variables(found)["main"] == f"metadata.annotations['{PREFIX}devices-main']"
    )


def test_pod_is_made_ours(api: Api) -> None:
    found = api.create(PODS, pod("made", gpu="1"))
    assert is_of_ours(found)
    assert found["spec"]["containers"][0]["resources"]["requests"] == {
        f"{PREFIX}gpu": "1",
        f"{PREFIX}gpu-compute": "100",
    }


def test_pod_with_a_generated_name_is_made_ours(api: Api) -> None:
    built = pod("", gpu_memory="10")
    built["metadata"] = {"generateName": "made-"}
    assert is_of_ours(api.create(PODS, built))


def test_fraction_becomes_a_resource_that_quotas_count(api: Api) -> None:
    found = api.create(PODS, pod("part", annotations={f"{PREFIX}gpu-fraction": "0.25"}))
    resources = found["spec"]["containers"][0]["resources"]
    assert resources["limits"] == resources["requests"] == {f"{PREFIX}gpu-compute": "25"}


@pytest.mark.parametrize(
    ("text", "stored", "mib"),
    [
        ("16Gi", "16384", 16_384),
        ("16384", "16384", 16_384),
        ("5k", "5k", 5_000),
        ("5000", "5k", 5_000),
        ("8G", "7629", 7_629),
    ],
)
def test_a1_api_server_adds_up_what_was_meant(front: Front, api: Api, text: str, stored: str, mib: int) -> None:
    """Kubernetes writes 5000 as 5k, whoever writes it; the warning then says what both mean."""
    endpoint = front.plane.endpoint()
    with httpx2.Client(
        verify=trust(endpoint), headers={"Authorization": f"Bearer {endpoint.token}"}, trust_env=False
    ) as client:
        answer = client.post(endpoint.url + PODS, json=pod("amount", gpu_memory=text))
    assert answer.status_code == 201, answer.text
    found = answer.json()
    assert found["spec"]["containers"][0]["resources"]["requests"][f"{PREFIX}gpu-memory"] == stored
    (ask,) = pod_request(decoded(found)).containers
    assert ask.memory_mib == mib
    told = [warning for warning in answer.headers.get_list("warning") if f"written as {mib} (MiB)" in warning]
    assert bool(told) == (text != "16384")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"gpu_compute": "101"}, "gpu-compute of container main: found '101', valid is 1 to 100 per cent"),
        ({"gpu": "3", "gpu_memory": "1000"}, "999 or 1002 MiB"),
        ({"gpu_memory": "1.5"}, "found '1500m', valid is a whole number"),
    ],
)
def test_a2_nonsense_is_refused_in_our_words(api: Api, rows: dict[str, str], words: str) -> None:
    with pytest.raises(ApiError) as refusal:
        api.create(PODS, pod("nonsense", **rows))
    assert words in refusal.value.message
    assert refusal.value.status == 422


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        pytest.param("gpu-arch", "ampere", "gpu-architecture", id="A3"),
        pytest.param("gpu-policy", "binpak", "binpack", id="D9"),
        pytest.param("gpu-product", "A1000-PCIE", "A100", id="product"),
    ],
)
def test_a3_d9_unknown_names_are_refused_with_those_that_are_valid(api: Api, key: str, value: str, words: str) -> None:
    with pytest.raises(ApiError) as refusal:
        api.create(PODS, pod("unknown", annotations={f"{PREFIX}{key}": value}, gpu_memory="4096"))
    assert key in refusal.value.message
    assert words in refusal.value.message


def test_what_no_node_could_hold_is_let_through_with_a_warning(front: Front, api: Api) -> None:
    endpoint = front.plane.endpoint()
    with httpx2.Client(
        verify=trust(endpoint), headers={"Authorization": f"Bearer {endpoint.token}"}, trust_env=False
    ) as client:
        answer = client.post(endpoint.url + PODS, json=pod("huge", gpu_memory="900000"))
    assert answer.status_code == 201
    assert "fits no node known today" in answer.headers["warning"]


def test_container_that_another_webhook_adds_later_sees_no_device(api: Api) -> None:
    built = pod("meshed", gpu="1")
    built["metadata"]["labels"]["mesh"] = "yes"
    found = api.create(PODS, built)
    assert variables(found) == {"main": f"metadata.annotations['{PREFIX}devices-main']", "mesh": "void"}


def test_pods_of_a_routed_namespace_go_to_our_scheduler(api: Api) -> None:
    batch = "/api/v1/namespaces/batch/pods"
    found = api.request("POST", batch, body=pod("cpu"), query={"dryRun": "All"})
    assert found["spec"]["schedulerName"] == "tangram-scheduler"
    assert "runtimeClassName" not in found["spec"]
    assert f"{PREFIX}managed" not in found["metadata"]["labels"]


def test_pods_that_tolerate_a_routed_taint_go_to_our_scheduler(api: Api) -> None:
    built = pod("cpu")
    built["spec"]["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    assert api.create(PODS, built)["spec"]["schedulerName"] == "tangram-scheduler"


def test_pods_of_the_device_plugin_keep_their_environment(api: Api) -> None:
    built = pod("plugin")
    built["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    found = api.create(PODS, built)
    assert found["spec"]["schedulerName"] == "tangram-scheduler"
    assert "env" not in found["spec"]["containers"][0]


WORKLOADS = [("apps/v1", "Deployment", "deployments"), ("batch/v1", "Job", "jobs")]


def owned(group: str, kind: str, name: str, body: Json) -> Json:
    body["metadata"]["labels"] = {"app": name}
    spec: Json = {"template": body}
    if kind == "Deployment":
        spec["selector"] = {"matchLabels": {"app": name}}
    else:
        body["spec"]["restartPolicy"] = "Never"
    return {"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": spec}


def collection(group: str, plural: str) -> str:
    return f"/apis/{group}/namespaces/ml/{plural}"


@pytest.mark.parametrize(("group", "kind", "plural"), WORKLOADS)
def test_pods_of_controllers_are_made_ours(api: Api, group: str, kind: str, plural: str) -> None:
    name = f"good-{plural}"
    api.create(collection(group, plural), owned(group, kind, name, template(gpu_memory="8Gi")))
    try:
        (found,) = wait_for("its pod", lambda: api.items(PODS, labelSelector=f"app={name}"))
        assert is_of_ours(found)
        assert found["spec"]["containers"][0]["resources"]["limits"] == {f"{PREFIX}gpu-memory": "8192"}
    finally:
        api.delete(f"{collection(group, plural)}/{name}")


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"env": [ALL]}, "NVIDIA_VISIBLE_DEVICES: valid is the literal void"),
        ({"annotations": {f"{PREFIX}allocation": "{}"}}, "annotations: valid is none"),
        ({"env": [ALL], "gpu": "1"}, "variable NVIDIA_VISIBLE_DEVICES of container main: found 'all'"),
    ],
    ids=["variable", "annotation", "variable in a GPU pod"],
)
@pytest.mark.parametrize(("group", "kind", "plural"), WORKLOADS)
def test_attack_through_a_controller_is_refused_and_told(
    api: Api, group: str, kind: str, plural: str, about: dict[str, object], words: str
) -> None:
    name = f"attack-{plural}"
    api.create(collection(group, plural), owned(group, kind, name, template(**about)))  # type: ignore[arg-type]

    def told() -> bool:
        events = api.items("/api/v1/namespaces/ml/events")
        return any(words in event["message"] for event in events if event["involvedObject"]["name"].startswith(name))

    try:
        wait_for("the refusal in an event", told)
        assert api.items(PODS, labelSelector=f"app={name}") == []
    finally:
        api.delete(f"{collection(group, plural)}/{name}")
        wait_for("it is gone", lambda: not api.exists(f"{collection(group, plural)}/{name}"))


@pytest.fixture
def down(front: Front, api: Api) -> Iterator[Api]:
    """The same API server while no webhook answers."""
    front.server.stop()
    yield api
    front.server.start()


def test_s4_pods_without_gpu_are_created_as_always_while_the_webhook_is_down(down: Api) -> None:
    assert down.create(PODS, pod("cpu"))["spec"]["schedulerName"] == "default-scheduler"


def test_routed_and_plugin_pods_fall_back_to_the_default_scheduler_while_the_webhook_is_down(down: Api) -> None:
    batch = "/api/v1/namespaces/batch/pods"
    found = down.request("POST", batch, body=pod("cpu"), query={"dryRun": "All"})
    assert found["spec"]["schedulerName"] == "default-scheduler"
    built = pod("plugin")
    built["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    assert down.create(PODS, built)["spec"]["schedulerName"] == "default-scheduler"


@pytest.mark.parametrize(
    "built",
    [pod("gpu", gpu="1"), pod("part", annotations={f"{PREFIX}gpu-fraction": "0.5"})],
    ids=["resource", "fraction"],
)
def test_gpu_pods_are_refused_while_the_webhook_is_down(down: Api, built: Json) -> None:
    with pytest.raises(ApiError, match="failed calling webhook"):
        down.create(PODS, built)


def test_policies_hold_while_the_webhook_is_down(down: Api) -> None:
    for built in (pod("attack", env=[ALL]), pod("attack", annotations={f"{PREFIX}devices-main": "GPU-1"})):
        with pytest.raises(ApiError, match="ValidatingAdmissionPolicy"):
            down.create(PODS, built)


def test_gpu_pods_are_created_again_once_the_webhook_is_back(front: Front, api: Api) -> None:
    front.server.stop()
    front.server.start()
    assert is_of_ours(api.create(PODS, pod("again", gpu="1")))


def test_running_pods_are_not_touched_by_an_outage(front: Front, api: Api) -> None:
    api.create(PODS, pod("early", gpu="1"))
    front.server.stop()
    try:
        changed = api.patch(f"{PODS}/early", {"metadata": {"annotations": {"example.com/note": "x"}}})
        assert changed["metadata"]["annotations"]["example.com/note"] == "x"
        with pytest.raises(ApiError, match="stay as they are"):
            api.patch(f"{PODS}/early", {"metadata": {"labels": {f"{PREFIX}managed": None}}}, PatchKind.MERGE)
    finally:
        front.server.start()
