"""The ValidatingAdmissionPolicies on a real kube-apiserver: who may write what, whatever the webhook says.

No webhook is installed here, so every pod is refused or accepted by the policies alone.
"""

import contextlib
from collections.abc import Iterator

import pytest

from extender.allocation import bound_labels, device_key
from tests.controlplane.access import User
from tests.controlplane.api import Api, ApiError, Json, PatchKind, wait_for
from tests.controlplane.build import Binaries
from tests.controlplane.conftest import PlaneFactory
from tests.controlplane.door import BINDER, install, render
from tests.controlplane.plane import ControlPlane

PREFIX = "tangram.dev/"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
NODE = "gpu-a"
ALL = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
VOID = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
AUTHOR = User("author", "author-token")
EXTENDER = User(BINDER, "binder-token", ("system:serviceaccounts",))
KUBELET = User(f"system:node:{NODE}", "kubelet-token", ("system:nodes",))
OTHER_SCHEDULER = User("volcano", "volcano-token")
RESOURCES = ["pods", "pods/status", "pods/ephemeralcontainers", "pods/binding", "pods/resize", "bindings"]


def shown(container: str) -> Json:
    path = f"metadata.annotations['{PREFIX}{device_key(container)}']"
    return {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": path}}}


def container(name: str = "main", *env: Json, gpu: bool = False, **rest: object) -> Json:
    built: Json = {"name": name, "image": "tangram.test/pause:1", "env": list(env), **rest}
    if gpu:
        built["resources"] = {"limits": {f"{PREFIX}gpu-memory": "8192"}}
    return built


def pod(
    name: str, *containers: Json, annotations: Json | None = None, labels: Json | None = None, **spec: object
) -> Json:
    metadata = {"name": name, "annotations": annotations or {}, "labels": labels or {}}
    return {"metadata": metadata, "spec": {"schedulerName": "nobody", "containers": list(containers), **spec}}


def as_the_webhook_leaves_it(name: str) -> Json:
    return pod(
        name,
        container("main", shown("main"), gpu=True),
        container("log", VOID),
        initContainers=[container("warm", shown("warm"), gpu=True), container("fetch", VOID)],
        labels={f"{PREFIX}managed": "true"},
        runtimeClassName="nvidia",
    )


def pods(namespace: str = "ml") -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def forbidden(words: str, method: str, path: str, body: Json | list[Json], api: Api, kind: str = "") -> None:
    with pytest.raises(ApiError) as refusal:
        api.request(method, path, body=body, content_type=kind or "application/json")
    assert refusal.value.status in (403, 422), str(refusal.value)
    assert "ValidatingAdmissionPolicy 'tangram-" in refusal.value.message
    assert words in refusal.value.message


def grant(api: Api, namespace: str, user: User) -> None:
    """Allow a user what the role `edit` allows and more; the role itself is filled by kube-controller-manager only."""
    name = user.name.replace(":", "-")
    group = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [""], "resources": RESOURCES, "verbs": ["get", "create", "update", "patch"]}]
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
        "subjects": [{"kind": "User", "apiGroup": group, "name": user.name}],
    }
    roles = f"{RBAC}/namespaces/{namespace}"
    api.create(f"{roles}/roles", {"metadata": {"name": name}, "rules": rules})
    api.create(f"{roles}/rolebindings", binding)


@pytest.fixture(scope="module")
def plane(
    start_control_plane: PlaneFactory,
    control_plane_binaries: Binaries,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ControlPlane]:
    plane = start_control_plane(users=(AUTHOR, EXTENDER, KUBELET, OTHER_SCHEDULER))
    api = plane.api
    for namespace in ("ml", "tangram-agents", "gpu-operator", "tangram-system"):
        api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        for user in (AUTHOR, EXTENDER, OTHER_SCHEDULER):
            grant(api, namespace, user)
    api.create("/api/v1/nodes", {"metadata": {"name": NODE}})
    for name in ("nvidia", "nvidia-cdi", "kata"):
        api.create("/apis/node.k8s.io/v1/runtimeclasses", {"metadata": {"name": name}, "handler": name})
    values = {"policies": {"exemptNamespaces": ["gpu-operator"]}}
    policies, _ = render(control_plane_binaries.path("helm"), tmp_path_factory.mktemp("chart"), values)
    install(api, policies)
    wait_for("the policies hold", lambda: hold(api))
    yield plane
    plane.check()


def hold(api: Api) -> bool:
    """Tell whether every policy refuses what it should: the API server takes them in one after the other."""
    probe = {"metadata": {"name": "probe", "annotations": {f"{PREFIX}allocation": "x"}}, "target": {"name": NODE}}
    if not api.exists(f"{pods()}/probe"):
        api.create(pods(), pod("probe", container(), labels={}))
    attempts: list[tuple[str, Json]] = [
        (pods(), pod("shape", container("main", ALL))),
        (pods(), pod("marks", container(), annotations={f"{PREFIX}allocation": "{}"})),
        (f"{pods()}/probe/binding", probe),
    ]
    return all(is_refused(api, path, body) for path, body in attempts)


def is_refused(api: Api, path: str, body: Json) -> bool:
    try:
        api.request("POST", path, body=body, query={"dryRun": "All"})
    except ApiError as refusal:
        return "ValidatingAdmissionPolicy" in refusal.message
    return False


@pytest.fixture
def author(plane: ControlPlane) -> Iterator[Api]:
    with Api(plane.endpoint(AUTHOR)) as api:
        yield api
    for namespace in ("ml", "tangram-agents", "gpu-operator"):
        for found in plane.api.items(pods(namespace)):
            with contextlib.suppress(ApiError):
                plane.api.delete(f"{pods(namespace)}/{found['metadata']['name']}", grace_s=0)


@pytest.fixture
def binder(plane: ControlPlane) -> Iterator[Api]:
    with Api(plane.endpoint(EXTENDER)) as api:
        yield api


def bind(api: Api, name: str, annotations: Json | None = None) -> None:
    metadata = {"name": name, "annotations": annotations or {}, "labels": bound_labels(annotations or {})}
    body = {"metadata": metadata, "target": {"kind": "Node", "name": NODE}}
    api.create(f"{pods()}/{name}/binding", body)


def bound(author: Api, binder: Api, name: str) -> None:
    """Let a pod be created as the webhook leaves it, and bound as the extender does."""
    author.create(pods(), as_the_webhook_leaves_it(name))
    bind(
        binder, name, {f"{PREFIX}allocation": "{}", f"{PREFIX}devices-main": "GPU-1", f"{PREFIX}devices-warm": "GPU-1"}
    )


def test_policies_compile_without_a_warning(plane: ControlPlane) -> None:
    def checked(name: str) -> Json | None:
        path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{name}"
        return plane.api.get(path).get("status", {"expressionWarnings": []})

    for name in ("tangram-pod-shapes", "tangram-pod-marks", "tangram-bindings", "tangram-managed-pods"):
        assert "expressionWarnings" not in (checked(name) or {}).get("typeChecking", {})


def test_pod_as_the_webhook_leaves_it_is_accepted(author: Api) -> None:
    assert author.create(pods(), as_the_webhook_leaves_it("good"))["metadata"]["name"] == "good"


@pytest.mark.parametrize(
    "built",
    [
        pytest.param(pod("plain", {"name": "main", "image": "x"}), id="plain"),
        pytest.param(pod("kata", container(), runtimeClassName="kata"), id="another runtime"),
        pytest.param(pod("void", container("main", VOID)), id="void"),
        pytest.param(pod("node", container(), nodeName=NODE), id="preset node"),
        pytest.param(pod("zero", container() | {"resources": {"limits": {f"{PREFIX}gpu": "0"}}}), id="zero GPUs"),
        pytest.param(
            pod("marks", container(), annotations={f"{PREFIX}gpu-fraction": " ", "example.com/cdi.k8s.io": "x"}),
            id="marks",
        ),
        pytest.param(
            pod("plugin", container() | {"resources": {"limits": {"nvidia.com/gpu": "1"}}}, runtimeClassName="nvidia"),
            id="device plugin",
        ),
    ],
)
def test_pod_that_asks_for_no_gpu_of_ours_is_untouched(author: Api, built: Json) -> None:
    author.create(pods(), built)


@pytest.mark.parametrize("field", ["containers", "initContainers"])
@pytest.mark.parametrize(
    "variable",
    [
        pytest.param(ALL, id="all"),
        pytest.param({"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}, id="none"),
        pytest.param({"name": "NVIDIA_VISIBLE_DEVICES"}, id="empty"),
        pytest.param(
            {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}},
            id="config map",
        ),
        pytest.param(
            {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}, id="secret"
        ),
        pytest.param(
            {
                "name": "NVIDIA_VISIBLE_DEVICES",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['example.com/devices']"}},
            },
            id="an annotation of the author's",
        ),
        pytest.param(
            {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['x']"}}},
            id="label",
        ),
    ],
)
def test_visible_devices_of_the_authors_own_are_refused(author: Api, variable: Json, field: str) -> None:
    built = pod("attack", container())
    built["spec"].setdefault(field, [])
    built["spec"][field] = [*built["spec"][field], container("two", VOID, variable)]
    forbidden("NVIDIA_VISIBLE_DEVICES: valid is the literal void", "POST", pods(), built, author)


def test_runtime_class_of_nvidia_without_an_explicit_variable_is_refused(author: Api) -> None:
    words = "says explicitly what it may see"
    for name in ("nvidia", "nvidia-cdi"):
        forbidden(words, "POST", pods(), pod("attack", container(), runtimeClassName=name), author)


def test_variable_from_a_config_map_as_a_whole_is_refused(author: Api) -> None:
    built = pod("attack", container(envFrom=[{"configMapRef": {"name": "devices"}}]), runtimeClassName="nvidia")
    forbidden("says explicitly what it may see", "POST", pods(), built, author)


def test_one_container_that_says_nothing_is_enough(author: Api) -> None:
    built = as_the_webhook_leaves_it("attack")
    built["spec"]["containers"].append(container("sidecar"))
    forbidden("says explicitly what it may see", "POST", pods(), built, author)


def test_gpu_pod_that_came_past_the_webhook_is_refused(author: Api) -> None:
    forbidden("says explicitly", "POST", pods(), pod("attack", container(gpu=True)), author)
    fraction = pod("attack", container(), annotations={f"{PREFIX}gpu-fraction": "0.5"})
    forbidden("says explicitly", "POST", pods(), fraction, author)


def test_preset_node_of_a_gpu_pod_is_refused(author: Api) -> None:
    built = as_the_webhook_leaves_it("attack")
    built["spec"]["nodeName"] = NODE
    forbidden("spec.nodeName", "POST", pods(), built, author)


def test_preset_node_of_a_plugin_pod_that_says_nothing_is_refused(author: Api) -> None:
    """Kubelet passes over a resource that its node does not advertise, so such a pod would run anywhere."""
    for resource in ("nvidia.com/gpu", "nvidia.com/mig-1g.10gb"):
        plugin = container() | {"resources": {"limits": {resource: "1"}}}
        built = pod("attack", plugin, runtimeClassName="nvidia", nodeName=NODE)
        forbidden("says explicitly", "POST", pods(), built, author)


def test_name_that_only_looks_like_the_plugins_exempts_nobody(author: Api) -> None:
    other = container() | {"resources": {"limits": {"nvidia.com/anything": "1"}}}
    forbidden("says explicitly", "POST", pods(), pod("attack", other, runtimeClassName="nvidia"), author)


def test_devices_named_by_a_mount_are_refused(author: Api) -> None:
    mount = {"name": "null", "mountPath": "/var/run/nvidia-container-devices/all"}
    volume = {"name": "null", "hostPath": {"path": "/dev/null"}}
    forbidden("volumeMounts", "POST", pods(), pod("attack", container(volumeMounts=[mount]), volumes=[volume]), author)


def test_label_of_a_bound_pod_is_refused_at_creation_and_later(author: Api) -> None:
    built = as_the_webhook_leaves_it("attack")
    built["metadata"]["labels"][f"{PREFIX}bound"] = "true"
    forbidden("label", "POST", pods(), built, author)
    author.create(pods(), as_the_webhook_leaves_it("victim"))
    patch = {"metadata": {"labels": {f"{PREFIX}bound": "true"}}}
    forbidden("stay as they are", "PATCH", f"{pods()}/victim", patch, author, PatchKind.MERGE)


@pytest.mark.parametrize("value", ["true", "false"])
def test_label_on_a_pod_that_asks_for_nothing_is_refused(author: Api, value: str) -> None:
    forbidden("label", "POST", pods(), pod("attack", container(), labels={f"{PREFIX}managed": value}), author)


@pytest.mark.parametrize(
    "key",
    [
        f"{PREFIX}allocation",
        f"{PREFIX}devices-main",
        f"{PREFIX}mps-threads-main",
        "nvidia.cdi.k8s.io/container.main",
        "nvidia.cdi.k8s.io/pod",
        "nvidia.cdi.k8s.io",
        "cdi.k8s.io/gpu",
    ],
)
def test_s2_annotations_of_a_binding_are_refused_at_creation_and_later(author: Api, binder: Api, key: str) -> None:
    forbidden(
        "annotations: valid is none", "POST", pods(), pod("attack", container(), annotations={key: "GPU-1"}), author
    )
    bound(author, binder, "victim")
    patch = {"metadata": {"annotations": {key: "GPU-666"}}}
    for path in (f"{pods()}/victim", f"{pods()}/victim/status"):
        forbidden("stay as", "PATCH", path, patch, author, PatchKind.MERGE)


@pytest.mark.parametrize("change", [None, "GPU-2"])
def test_allocation_stays_as_it_was_bound(plane: ControlPlane, author: Api, binder: Api, change: str | None) -> None:
    bound(author, binder, "victim")
    patch = {"metadata": {"annotations": {f"{PREFIX}devices-main": change}}}
    for path in (f"{pods()}/victim", f"{pods()}/victim/status"):
        for api in (author, binder, plane.api):
            forbidden("stay as", "PATCH", path, patch, api, PatchKind.MERGE)


def test_allocation_stays_through_ephemeral_containers_and_resizes(author: Api, binder: Api) -> None:
    bound(author, binder, "victim")
    for subresource in ("ephemeralcontainers", "resize"):
        path = f"{pods()}/victim/{subresource}"
        whole = author.get(path)
        whole["metadata"]["annotations"][f"{PREFIX}devices-main"] = "GPU-2"
        with contextlib.suppress(ApiError):
            author.replace(path, whole)
        assert author.get(f"{pods()}/victim")["metadata"]["annotations"][f"{PREFIX}devices-main"] == "GPU-1"


def test_s2_other_annotations_and_labels_may_change(author: Api, binder: Api) -> None:
    bound(author, binder, "mine")
    patch = {"metadata": {"annotations": {"example.com/note": "x"}, "labels": {"app": "y"}}}
    author.patch(f"{pods()}/mine", patch)


@pytest.mark.parametrize("value", [None, "false"])
def test_label_of_a_pod_of_ours_cannot_be_taken_off(author: Api, binder: Api, value: str | None) -> None:
    bound(author, binder, "victim")
    patch = {"metadata": {"labels": {f"{PREFIX}managed": value}}}
    forbidden("stay as they are", "PATCH", f"{pods()}/victim", patch, author, PatchKind.MERGE)


def test_label_cannot_be_put_on_later(author: Api) -> None:
    author.create(pods(), pod("other", container()))
    patch = {"metadata": {"labels": {f"{PREFIX}managed": "true"}}}
    forbidden("stay as they are", "PATCH", f"{pods()}/other", patch, author, PatchKind.MERGE)


def test_kubelet_writes_the_status_of_a_bound_pod(plane: ControlPlane, author: Api, binder: Api) -> None:
    bound(author, binder, "mine")
    with Api(plane.endpoint(KUBELET)) as kubelet:
        changed = kubelet.patch(f"{pods()}/mine/status", {"status": {"phase": "Running"}})
    assert changed["status"]["phase"] == "Running"
    assert changed["metadata"]["annotations"][f"{PREFIX}devices-main"] == "GPU-1"


def debugger(*env: Json, name: str = "debugger") -> Json:
    return {"spec": {"ephemeralContainers": [{"name": name, "image": "x", "env": list(env)}]}}


@pytest.mark.parametrize("env", [(), (ALL,), (VOID, ALL)], ids=["says nothing", "all", "all after void"])
def test_ephemeral_container_that_could_see_devices_is_refused(author: Api, binder: Api, env: tuple[Json, ...]) -> None:
    bound(author, binder, "victim")
    path = f"{pods()}/victim/ephemeralcontainers"
    forbidden("NVIDIA_VISIBLE_DEVICES", "PATCH", path, debugger(*env), author, PatchKind.STRATEGIC)


@pytest.mark.parametrize("env", [VOID, shown("main")], ids=["void", "the pod's own devices"])
def test_ephemeral_container_in_our_shape_is_accepted(author: Api, binder: Api, env: Json) -> None:
    bound(author, binder, "mine")
    author.patch(f"{pods()}/mine/ephemeralcontainers", debugger(env), PatchKind.STRATEGIC)


def test_ephemeral_container_of_a_pod_without_gpu_is_untouched(author: Api) -> None:
    author.create(pods(), pod("plain", container()))
    path = f"{pods()}/plain/ephemeralcontainers"
    author.patch(path, debugger(), PatchKind.STRATEGIC)
    forbidden("literal void", "PATCH", path, debugger(ALL, name="second"), author, PatchKind.STRATEGIC)


@pytest.mark.parametrize("user", [AUTHOR, OTHER_SCHEDULER], ids=lambda user: user.name)
@pytest.mark.parametrize("resource", ["pods/binding", "bindings"])
def test_only_the_extender_binds_with_our_annotations(
    plane: ControlPlane, author: Api, user: User, resource: str
) -> None:
    author.create(pods(), pod("plain", container()))
    path = f"{pods()}/plain/binding" if resource == "pods/binding" else "/api/v1/namespaces/ml/bindings"
    for key in ("tangram.dev/allocation", "tangram.dev/devices-main", "nvidia.cdi.k8s.io/container.main"):
        body = {"metadata": {"name": "plain", "annotations": {key: "GPU-1"}}, "target": {"kind": "Node", "name": NODE}}
        with Api(plane.endpoint(user)) as api:
            forbidden("annotations of a Binding", "POST", path, body, api)


@pytest.mark.parametrize("user", [AUTHOR, OTHER_SCHEDULER], ids=lambda user: user.name)
@pytest.mark.parametrize("resource", ["pods/binding", "bindings"])
def test_only_the_extender_binds_a_pod_of_ours(plane: ControlPlane, author: Api, user: User, resource: str) -> None:
    author.create(pods(), as_the_webhook_leaves_it("victim"))
    path = f"{pods()}/victim/binding" if resource == "pods/binding" else "/api/v1/namespaces/ml/bindings"
    body = {"metadata": {"name": "victim"}, "target": {"kind": "Node", "name": NODE}}
    with Api(plane.endpoint(user)) as api:
        wait_for("the API server knows the pod", lambda: is_refused(api, path, body))
        forbidden("may bind a pod that carries the label", "POST", path, body, api)
    assert "nodeName" not in author.get(f"{pods()}/victim")["spec"]


@pytest.mark.parametrize("label", ["managed", "bound"])
def test_labels_of_ours_come_into_a_pod_by_no_other_binding(plane: ControlPlane, author: Api, label: str) -> None:
    author.create(pods(), as_the_webhook_leaves_it("victim"))
    metadata = {"name": "victim", "labels": {f"{PREFIX}{label}": "false"}}
    body = {"metadata": metadata, "target": {"kind": "Node", "name": NODE}}
    with Api(plane.endpoint(OTHER_SCHEDULER)) as api:
        forbidden("Binding: only", "POST", f"{pods()}/victim/binding", body, api)


def test_binding_of_ours_marks_the_pod_as_bound(author: Api, binder: Api) -> None:
    bound(author, binder, "mine")
    assert author.get(f"{pods()}/mine")["metadata"]["labels"] == {f"{PREFIX}managed": "true", f"{PREFIX}bound": "true"}


def test_other_schedulers_bind_other_pods_beside_pods_of_ours(plane: ControlPlane, author: Api) -> None:
    author.create(pods(), as_the_webhook_leaves_it("ours"))
    author.create(pods(), pod("theirs", container()))
    with Api(plane.endpoint(OTHER_SCHEDULER)) as api:
        bind(api, "theirs")
    assert author.get(f"{pods()}/theirs")["spec"]["nodeName"] == NODE


def test_agents_and_tools_of_the_operator_are_exempt_by_namespace(author: Api) -> None:
    for namespace in ("tangram-agents", "gpu-operator"):
        author.create(pods(namespace), pod("tool", container("main", ALL), runtimeClassName="nvidia"))


def test_label_on_a_namespace_exempts_nobody(plane: ControlPlane, author: Api) -> None:
    plane.api.patch("/api/v1/namespaces/ml", {"metadata": {"labels": {"kubernetes.io/metadata.name": "gpu-operator"}}})
    forbidden("literal void", "POST", pods(), pod("tool", container("main", ALL)), author)


@pytest.mark.parametrize(("containers", "variables", "marks"), [(20, 500, 0), (1, 0, 6_000)])
def test_large_pod_is_judged_within_the_cost_limit(author: Api, containers: int, variables: int, marks: int) -> None:
    """Ten thousand variables, six thousand annotations: far more than any real pod has."""
    env = [{"name": f"A{number}", "value": "x"} for number in range(variables)]
    annotations = {f"a.b/{number:x}": "" for number in range(marks)}
    built = pod(
        "large", *(container(f"c{number}", VOID, *env) for number in range(containers)), annotations=annotations
    )
    author.create(pods(), built)
