"""Health with a real kube-scheduler: a device that fails leaves its sight, the pods on it are named, and it returns."""

import time
from collections.abc import Iterator

import pytest

from node_agent.simulated_builders import node_description
from node_agent.simulated_description import LostFault, XidFault
from tests.controlplane.api import Json, PatchKind, wait_for
from tests.controlplane.conftest import PlaneFactory
from tests.controlplane.stack import EXTENDER, PREFIX, Stack, open_stack, pod

NODE = "gpu-a"
SHARES = ("one", "two", "three", "four")
SEEN_S = 2.0
RESET_AFTER_S = 8.0
UNHEALTHY = "1 too few healthy GPUs"
EVENTS = "/api/v1/namespaces/default/events"


@pytest.fixture(scope="module")
def running(start_control_plane: PlaneFactory) -> Iterator[Stack]:
    plane = start_control_plane(users=[EXTENDER])
    with open_stack(plane, [node_description(NODE, "T4", 2)]) as stack:
        yield stack


@pytest.fixture
def stack(running: Stack) -> Iterator[Stack]:
    yield running
    for uuid in running.agents.uuids(NODE):
        running.agents.set_foreign(NODE, uuid, None)
    running.clear()
    wait_for("every device is healthy", lambda: {state(running, at) for at in range(2)} == {"healthy"}, within_s=30)


def device(stack: Stack, at: int) -> Json:
    """Return one device as the extender sees it."""
    [node] = stack.fleet()["nodes"]
    found: Json = node["devices"][at]
    return found


def state(stack: Stack, at: int) -> str:
    return str(device(stack, at)["state"])


def on(stack: Stack, at: int) -> dict[str, str]:
    """Return the wish for one device."""
    return {"gpu-uuid": stack.agents.uuids(NODE)[at]}


def share_first_device(stack: Stack) -> None:
    for name in SHARES:
        stack.create(pod(name, wishes=on(stack, 0), memory=1000, compute=10))
    stack.wait_all(len(SHARES))


def about_pods(stack: Stack, reason: str) -> dict[str, Json]:
    """Return the events about pods with this reason, by the pod's UID."""
    events = [each for each in stack.api.items(EVENTS) if each["reason"] == reason]
    return {each["involvedObject"]["uid"]: each for each in events if each["involvedObject"]["kind"] == "Pod"}


def test_xid_79_takes_the_device_out_names_its_pods_and_the_recovery_rule_brings_it_back(stack: Stack) -> None:
    share_first_device(stack)
    uids = {each["metadata"]["uid"] for each in stack.pods()}
    began = time.monotonic()
    stack.agents.plant_fault(NODE, XidFault(device=0, xid=79, until_s=RESET_AFTER_S))
    wait_for("the device is out", lambda: state(stack, 0) == "out", within_s=SEEN_S)
    assert time.monotonic() - began < SEEN_S
    stack.create(pod("waits", wishes=on(stack, 0), memory=1000, compute=10))
    stack.wait_refusal("waits", UNHEALTHY)
    stack.create(pod("elsewhere", memory=1000, compute=10))
    assert stack.wait_phase("elsewhere")["spec"]["nodeName"] == NODE
    wait_for("every pod is named in an event", lambda: uids <= about_pods(stack, "GpuFault").keys(), within_s=10)
    told = about_pods(stack, "GpuFault")
    assert all("XID 79" in told[uid]["message"] and on(stack, 0)["gpu-uuid"] in told[uid]["message"] for uid in uids)
    stack.wait_phase("waits", within_s=40)
    assert time.monotonic() - began > RESET_AFTER_S, "not before it was reset"
    stack.check_books()


def test_contained_fault_is_left_after_a_probation_and_waiting_pods_are_woken(stack: Stack) -> None:
    stack.agents.plant_fault(NODE, XidFault(device=0, xid=94))
    wait_for("the device is out", lambda: state(stack, 0) == "out", within_s=SEEN_S)
    stack.create(pod("waits", wishes=on(stack, 0), memory=1000, compute=10))
    stack.wait_refusal("waits", UNHEALTHY)
    stack.wait_phase("waits", within_s=30)


def test_lost_device_is_reported_as_lost_and_the_other_one_stays(stack: Stack) -> None:
    stack.agents.plant_fault(NODE, LostFault(device=0, until_s=6))
    wait_for("the device is lost", lambda: device(stack, 0)["health"] == "lost", within_s=SEEN_S)
    assert state(stack, 1) == "healthy"
    stack.create(pod("both", devices=2))
    stack.wait_refusal("both", UNHEALTHY)
    stack.wait_phase("both", within_s=40)


def test_memory_of_a_stranger_is_not_offered_two_seconds_later(stack: Stack) -> None:
    uuid = on(stack, 0)["gpu-uuid"]
    capacity = stack.hardware[uuid].capacity_mib
    stack.agents.set_foreign(NODE, uuid, capacity - 1000)
    wait_for("the extender knows", lambda: device(stack, 0)["foreign_mib"] == capacity - 1000, within_s=SEEN_S)
    stack.create(pod("too-large", wishes=on(stack, 0), memory=1001, compute=1))
    stack.wait_refusal("too-large", "1 too little free GPU memory on each GPU")
    stack.agents.set_foreign(NODE, uuid, None)
    stack.wait_phase("too-large", within_s=15)


def test_annotation_of_the_node_cordons_one_device_until_it_is_taken_away(stack: Stack) -> None:
    node, key = f"/api/v1/nodes/{NODE}", f"{PREFIX}/cordoned"
    stack.api.patch(node, {"metadata": {"annotations": {key: on(stack, 0)["gpu-uuid"]}}}, PatchKind.MERGE)
    wait_for("the device is cordoned", lambda: device(stack, 0)["health"] == "cordoned", within_s=10)
    stack.create(pod("waits", wishes=on(stack, 0), memory=1000, compute=10))
    stack.wait_refusal("waits", UNHEALTHY)
    stack.api.patch(node, {"metadata": {"annotations": {key: None}}}, PatchKind.MERGE)
    stack.wait_phase("waits", within_s=15)
