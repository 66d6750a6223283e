"""Nodes where NVIDIA's device plugin hands out some devices, with a real kube-scheduler."""

from collections.abc import Iterator

import pytest

from node_agent.simulated_description import Description, DeviceRow, PluginRow, XidFault
from tests.controlplane.api import Json, wait_for
from tests.controlplane.conftest import PlaneFactory
from tests.controlplane.stack import EXTENDER, PREFIX, Stack, open_stack, pod

GPU = "nvidia.com/gpu"
OURS = DeviceRow(product="T4")
NODES = (
    Description(
        node="turing",
        devices=(OURS, DeviceRow(product="T4", count=2)),
        plugin=(PluginRow(resource=GPU, devices=(1, 2)),),
    ),
    Description(node="ada", devices=(OURS, DeviceRow(product="L4")), plugin=(PluginRow(resource=GPU, devices=(1,)),)),
)


@pytest.fixture(scope="module")
def running(start_control_plane: PlaneFactory) -> Iterator[Stack]:
    plane = start_control_plane(users=[EXTENDER])
    with open_stack(plane, NODES) as stack:
        yield stack


@pytest.fixture
def stack(running: Stack) -> Iterator[Stack]:
    yield running
    running.clear()


def wants(name: str, count: int = 1, **wishes: str) -> Json:
    """Return a pod that asks NVIDIA's device plugin."""
    made = pod(name, wishes={key.replace("_", "-"): text for key, text in wishes.items()})
    made["spec"]["containers"][0]["resources"] = {"limits": {GPU: str(count)}}
    return made


def test_conditions_hold_for_devices_that_the_plugin_hands_out(stack: Stack) -> None:
    stack.create(wants("new", gpu_architecture=">=ada"), wants("old", gpu_architecture="turing"))
    assert stack.wait_phase("new")["spec"]["nodeName"] == "ada"
    assert stack.wait_phase("old")["spec"]["nodeName"] == "turing"
    stack.create(wants("newer", gpu_architecture=">=ampere"))
    stack.wait_refusal("newer", "1 too few GPUs meet the pod's conditions")
    stack.delete("new")
    assert stack.wait_phase("newer")["spec"]["nodeName"] == "ada"


def test_the_device_is_left_to_the_plugin_and_ours_are_not_touched(stack: Stack) -> None:
    stack.create(*(wants(f"theirs-{number}") for number in range(3)))
    running = stack.wait_all(3)
    assert not [key for each in running for key in each["metadata"].get("annotations", {}) if key.startswith(PREFIX)]
    stack.create(*(pod(f"ours-{number}", devices=1) for number in range(2)))
    stack.wait_all(5)
    assert len(stack.check_books()) == 2


def test_a_device_that_fails_is_not_counted_on(stack: Stack) -> None:
    stack.agents.plant_fault("turing", XidFault(device=2, xid=79, until_s=8))
    wait_for("the device is out", lambda: "out" in states(stack, "turing"), within_s=5)
    stack.create(wants("both", 2))
    stack.wait_refusal("both", "1 too few healthy GPUs")
    assert stack.wait_phase("both", within_s=40)["spec"]["nodeName"] == "turing"


def states(stack: Stack, node: str) -> list[str]:
    [found] = [each for each in stack.fleet()["nodes"] if each["name"] == node]
    return [each["state"] for each in found["devices"]]
