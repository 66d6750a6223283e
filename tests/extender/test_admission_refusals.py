"""What the door refuses: everything wrong at once, by field, with the value found and what is valid."""

from __future__ import annotations

from typing import Any

import pytest

from extender.allocation import Injector
from tests.support.fleets import device_kind, fleet, gpu
from tests.support.pods import PREFIX
from tests.support.reviews import VOID, a_door, decoded, raw_container, raw_pod, refusal, shown

ALL = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}


def refused(*words: str, rules: dict[str, Any] | None = None, pod: dict[str, Any]) -> None:
    message = refusal(pod, a_door(**(rules or {})))
    for word in words:
        assert word in message


def test_all_problems_are_told_at_once():
    pod = raw_pod(
        raw_container("main", gpu_compute="101", env=[ALL]),
        raw_container("other", gpu="3", gpu_memory="1000"),
        annotations={
            f"{PREFIX}gpu-arch": "ampere",
            f"{PREFIX}gpu-policy": "binpak",
            f"{PREFIX}gpu-product": "A1000000",
            f"{PREFIX}allocation": "{}",
        },
        schedulerName="volcano",
        runtimeClassName="kata",
        nodeName="node-1",
    )
    message = refusal(pod)
    assert message.startswith("10 problems: (1) ")
    for word in (
        "gpu-compute of container main: found '101'",
        "gpu-memory of container other: found '1000'",
        "gpu-arch: found 'ampere'",
        "the nearest is binpack",
        "gpu-product: found 'a1000000'",
        "spec.nodeName: found 'node-1'",
        "spec.schedulerName: found 'volcano', valid is tangram-scheduler, or nothing",
        "spec.runtimeClassName: found 'kata', valid is nvidia or nvidia-cdi or nvidia-legacy, or nothing",
        f"annotation {PREFIX}allocation: found '{{}}'",
        "variable NVIDIA_VISIBLE_DEVICES of container main: found 'all'",
    ):
        assert word in message


@pytest.mark.parametrize(
    "variable",
    [
        pytest.param(ALL, id="all"),
        pytest.param({"name": "NVIDIA_VISIBLE_DEVICES", "value": "GPU-1"}, id="a device"),
        pytest.param({"name": "NVIDIA_VISIBLE_DEVICES"}, id="nothing"),
        pytest.param(VOID, id="void where devices are asked"),
        pytest.param(shown("other"), id="another container's devices"),
        pytest.param(
            {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}},
            id="a config map",
        ),
        pytest.param(
            {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['x']"}}},
            id="a label",
        ),
    ],
)
def test_visible_devices_of_the_author_are_refused(variable: dict[str, Any]):
    refused("variable NVIDIA_VISIBLE_DEVICES of container main", pod=raw_pod(raw_container(gpu="1", env=[variable])))


def test_later_duplicate_of_a_variable_is_refused_too():
    refused("found 'all'", pod=raw_pod(raw_container(gpu="1", env=[shown("main"), ALL])))


def test_container_without_gpu_may_only_say_void():
    pod = raw_pod(raw_container(gpu="1"), raw_container("log", env=[shown("main")]))
    refused("of container log: found", "valid is void", pod=pod)


def test_mps_limits_of_the_author_are_refused():
    variable = {"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "100"}
    marks = {f"{PREFIX}gpu-sharing": "mps"}
    refused(
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
        pod=raw_pod(raw_container(gpu_memory="1", env=[variable]), annotations=marks),
    )


@pytest.mark.parametrize(
    "key",
    [
        f"{PREFIX}allocation",
        f"{PREFIX}devices-main",
        f"{PREFIX}mps-threads-main",
        "nvidia.cdi.k8s.io/container.main",
        "nvidia.cdi.k8s.io",
        "cdi.k8s.io/gpus",
    ],
)
def test_annotations_of_a_binding_are_refused_with_and_without_gpu(key: str):
    refused(f"annotation {key}", pod=raw_pod(raw_container(gpu="1"), annotations={key: "GPU-1"}))
    refused(f"annotation {key}", pod=raw_pod(raw_container(), annotations={key: "GPU-1"}))


def test_label_with_another_value_is_refused():
    refused(
        f"label {PREFIX}managed: found 'no'", pod=raw_pod(raw_container(gpu="1"), labels={f"{PREFIX}managed": "no"})
    )


def test_long_container_name_is_refused_where_nri_injects():
    pod = raw_pod(raw_container("m" * 54, gpu="1"))
    refused("at most 53 characters", pod=pod, rules={"injector": Injector.NRI})
    assert not a_door().mutate(decoded(pod), "ml").problems


def test_product_that_only_the_fleet_knows_is_accepted():
    kind = device_kind("NVIDIA Future 9000", compute_capability=(13, 0), total_mib=1000)
    pod = raw_pod(raw_container(gpu="1"), annotations={f"{PREFIX}gpu-product": "NVIDIA Future 9000"})
    assert "gpu-product" in refusal(pod)
    assert not a_door(fleet(a=[gpu(kind)])).mutate(decoded(pod), "ml").problems


def test_our_resources_and_the_plugins_in_one_pod_are_refused():
    container = raw_container(gpu="1")
    container["resources"]["limits"]["nvidia.com/gpu"] = "1"
    refused("not both", pod=raw_pod(container))


def test_unknown_resource_of_ours_is_refused_with_the_nearest():
    refused(f"the nearest is {PREFIX}gpu-memory", pod=raw_pod(raw_container(gpu_memor="1")))
