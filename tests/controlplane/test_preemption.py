"""Preemption on the real scheduler: the right victims go, and nobody goes for nothing."""

from collections.abc import Iterator

import pytest

from node_agent.simulated_builders import node_description
from tests.controlplane.api import wait_for
from tests.controlplane.conftest import PlaneFactory
from tests.controlplane.stack import EXTENDER, Stack, open_stack, pod

NODES = ("gpu-a", "gpu-b", "gpu-c")
PRIORITIES = {"low": 10, "middle": 100, "high": 1000, "highest": 10_000}


@pytest.fixture(scope="module")
def running(start_control_plane: PlaneFactory) -> Iterator[Stack]:
    plane = start_control_plane(users=[EXTENDER])
    for name, value in PRIORITIES.items():
        plane.api.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": value})
    with open_stack(plane, [node_description(name, "T4", 2) for name in NODES]) as stack:
        yield stack


@pytest.fixture
def stack(running: Stack) -> Iterator[Stack]:
    yield running
    running.clear()


def place(stack: Stack, name: str, node: str, device: int, memory: int, priority: str) -> None:
    """Let a pod run on one device."""
    uuid = stack.agents.uuids(node)[device]
    stack.create(pod(name, wishes={"gpu-uuid": uuid}, memory=memory, compute=10, priority_class=priority))
    stack.wait_phase(name)


def names(stack: Stack) -> set[str]:
    return {each["metadata"]["name"] for each in stack.pods() if "deletionTimestamp" not in each["metadata"]}


def test_pod_of_high_priority_evicts_the_least_important_victim_that_helps(stack: Stack) -> None:
    for node in NODES:
        for device in range(2):
            least = node == "gpu-b" and device == 1
            place(stack, f"{node}-{device}", node, device, 14_000, "low" if least else "middle")
    before = names(stack)
    stack.create(pod("urgent", memory=12_000, compute=10, priority_class="high"))
    assert stack.wait_phase("urgent")["spec"]["nodeName"] == "gpu-b"
    assert names(stack) == before - {"gpu-b-1"} | {"urgent"}
    stack.check_books()


def test_pods_are_not_evicted_where_the_devices_would_still_be_too_full(stack: Stack) -> None:
    """By totals the third node would do after an eviction, by device it would not (extender-protocol.md section 12)."""
    for node in NODES[:2]:
        for device in range(2):
            place(stack, f"{node}-{device}", node, device, 8_000, "low")
    for device in range(2):
        place(stack, f"keeps-{device}", NODES[2], device, 7_000, "highest")
        place(stack, f"at-risk-{device}", NODES[2], device, 7_000, "low")
    before = names(stack)
    stack.create(pod("urgent", memory=10_000, compute=10, priority_class="high"))
    stack.wait_refusal("urgent", "2 too little free GPU memory on each GPU")

    def judged() -> object:
        decisions = stack.extender_says("/v1/explain/default/urgent")["decisions"]
        return decisions.get("preempt")

    assert wait_for("an eviction was thought of", judged)["outcome"] == "in vain"  # type: ignore[index]
    assert names(stack) == before | {"urgent"}
    stack.delete("gpu-a-0", grace_s=None)
    assert stack.wait_phase("urgent")["spec"]["nodeName"] == "gpu-a"
    assert names(stack) == before - {"gpu-a-0"} | {"urgent"}
    stack.check_books()
