"""A real kube-scheduler that asks the extender about every pod: those without GPUs leave GPUs the CPU they need."""

from collections.abc import Iterator

import pytest

from extender.scheduler_config import SCHEDULER_NAME, scheduler_configuration
from node_agent.simulated_builders import node_description
from tests.controlplane.api import Json
from tests.controlplane.conftest import PlaneFactory
from tests.controlplane.kubelet import HollowNode
from tests.controlplane.stack import EXTENDER, IMPATIENT, Stack, open_stack, pod

HOST_ONLY = 12
CPU = 2


@pytest.fixture(scope="module")
def stack(start_control_plane: PlaneFactory) -> Iterator[Stack]:
    plane = start_control_plane(users=[EXTENDER])
    kubelets = [HollowNode("plain", cpu="32"), HollowNode("gpu-a", cpu="32")]
    described = [node_description("gpu-a", "L4", 8)]
    with open_stack(plane, described, with_scheduler=False, kubelets=kubelets) as opened:
        configuration = scheduler_configuration(opened.extender.url, election={"leaderElect": False}, every_pod=True)
        plane.start_scheduler(configuration | IMPATIENT, "tangram")
        yield opened


def host_only(name: str) -> Json:
    requests = {"cpu": str(CPU), "memory": "1Gi"}
    container = {"name": "main", "image": "tangram.test/pause:1", "resources": {"requests": requests}}
    return {"metadata": {"name": name}, "spec": {"schedulerName": SCHEDULER_NAME, "containers": [container]}}


def test_pods_without_gpus_go_where_no_gpu_needs_the_cpu_and_pods_with_gpus_are_placed_as_ever(stack: Stack) -> None:
    stack.create(*(host_only(f"host-{number}") for number in range(HOST_ONLY)))
    stack.create(*(pod(f"gpu-{number}", devices=1, compute=50) for number in range(4)))
    placed = {each["metadata"]["name"]: each["spec"]["nodeName"] for each in stack.wait_all(HOST_ONLY + 4)}
    assert {node for name, node in placed.items() if name.startswith("host-")} == {"plain"}
    assert {node for name, node in placed.items() if name.startswith("gpu-")} == {"gpu-a"}
    assert sum(len(shares) for shares in stack.check_books().values()) == 4


def test_a_pod_without_gpus_that_fits_nowhere_else_still_runs_beside_gpus(stack: Stack) -> None:
    left = 32 - HOST_ONLY * CPU
    large = host_only("large")
    large["spec"]["containers"][0]["resources"]["requests"]["cpu"] = str(left + 1)
    stack.create(large)
    assert stack.wait_phase("large")["spec"]["nodeName"] == "gpu-a"
