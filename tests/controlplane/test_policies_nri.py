"""The policies where NVIDIA's NRI plugin injects devices: no variable is needed, and names fit an annotation key."""

from collections.abc import Iterator

import pytest

from tests.controlplane.api import Api, ApiError, Json, wait_for
from tests.controlplane.build import Binaries
from tests.controlplane.conftest import PlaneFactory
from tests.controlplane.door import install, render

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def api(
    start_control_plane: PlaneFactory, control_plane_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Api]:
    plane = start_control_plane()
    plane.api.create("/apis/node.k8s.io/v1/runtimeclasses", {"metadata": {"name": "nvidia"}, "handler": "nvidia"})
    values = {"injector": "nri", "prefix": "gpu.example"}
    policies, _ = render(control_plane_binaries.path("helm"), tmp_path_factory.mktemp("chart"), values)
    install(plane.api, policies)
    wait_for("the policies hold", lambda: refusal(plane.api, pod("main", {"gpu.example/allocation": "{}"})))
    wait_for("the policies hold", lambda: refusal(plane.api, pod("m" * 54)))
    yield plane.api
    plane.check()


def pod(container: str, annotations: Json | None = None, **spec: object) -> Json:
    built = {"name": container, "image": "x", "resources": {"limits": {"gpu.example/gpu": "1"}}}
    return {"metadata": {"name": "p", "annotations": annotations or {}}, "spec": {"containers": [built], **spec}}


def refusal(api: Api, built: Json) -> str:
    try:
        api.request("POST", PODS, body=built, query={"dryRun": "All"})
    except ApiError as refused:
        return refused.message
    return ""


def test_gpu_pod_without_variables_is_accepted(api: Api) -> None:
    assert refusal(api, pod("main")) == ""
    assert refusal(api, pod("m" * 53)) == ""


def test_name_that_fits_no_cdi_key_is_refused(api: Api) -> None:
    assert "at most 53 characters" in refusal(api, pod("m" * 54))


@pytest.mark.parametrize("key", ["nvidia.cdi.k8s.io/container.main", "gpu.example/devices-main"])
def test_annotation_that_injects_devices_is_refused(api: Api, key: str) -> None:
    assert "annotations: valid is none" in refusal(api, pod("main", {key: "nvidia.com/gpu=GPU-1"}))


def test_runtime_class_of_nvidia_still_needs_an_explicit_variable(api: Api) -> None:
    assert "says explicitly" in refusal(api, pod("main", runtimeClassName="nvidia"))
