"""Measured load, memory of strangers and reports that stop decide where pods go, with a real kube-scheduler."""

from collections.abc import Iterator

import pytest

from node_agent.simulated_builders import node_description
from tests.controlplane.api import Json, wait_for
from tests.controlplane.conftest import PlaneFactory
from tests.controlplane.stack import EXTENDER, Stack, open_stack, pod

NODES = ("gpu-a", "gpu-b")
STALE_AFTER_S = 6
FRESH_LOADS_S = {"TANGRAM_LOAD_AVERAGE_S": "0.5", "TANGRAM_STALE_AFTER_S": str(STALE_AFTER_S)}
REPETITIONS = 50


@pytest.fixture(scope="module")
def running(start_control_plane: PlaneFactory) -> Iterator[Stack]:
    plane = start_control_plane(users=[EXTENDER])
    with open_stack(plane, [node_description(name, "T4", 1) for name in NODES], FRESH_LOADS_S) as stack:
        yield stack


@pytest.fixture
def stack(running: Stack) -> Iterator[Stack]:
    yield running
    for name in NODES:
        running.agents.restore(name)
        running.agents.set_foreign(name, device(running, name), None)
    running.clear()


def device(stack: Stack, node: str) -> str:
    (uuid,) = stack.agents.uuids(node)
    return uuid


def seen(stack: Stack, node: str) -> Json:
    """Return the only device of a node as the extender sees it."""
    (found,) = [each for each in stack.fleet()["nodes"] if each["name"] == node]
    return {"node_state": found["state"], **found["devices"][0]}


def set_load(stack: Stack, busy: str) -> None:
    """Let one node be at 90 % and the other idle, and wait until the extender knows."""
    for node in NODES:
        stack.agents.set_utilisation(node, device(stack, node), 0.9 if node == busy else 0.0)

    def known() -> bool:
        loads = {node: seen(stack, node)["load"] for node in NODES}
        return all(
            load is not None and abs(load - (0.9 if node == busy else 0.0)) < 0.1 for node, load in loads.items()
        )

    wait_for(f"{busy} is known to be busy", known)


@pytest.mark.parametrize("busy", NODES)
def test_busy_one_of_two_equal_nodes_gets_the_pod_last(stack: Stack, busy: str) -> None:
    set_load(stack, busy)
    (idle,) = set(NODES) - {busy}
    went = []
    for _ in range(REPETITIONS // len(NODES)):
        stack.create(pod("first", devices=1))
        stack.wait_phase("first")
        stack.create(pod("second", devices=1))
        stack.wait_phase("second")
        went.append(tuple(stack.pod(name)["spec"]["nodeName"] for name in ("first", "second")))
        stack.clear()
    assert went == [(idle, busy)] * len(went)


def test_memory_of_a_foreign_process_is_never_given_away(stack: Stack) -> None:
    uuid = device(stack, "gpu-a")
    capacity = stack.hardware[uuid].capacity_mib
    stack.agents.set_foreign("gpu-a", uuid, 8000)
    wait_for("the extender knows", lambda: seen(stack, "gpu-a")["foreign_mib"] == 8000)
    stack.create(pod("too-large", memory=capacity - 8000 + 1, node="gpu-a"))
    stack.wait_refusal("too-large", "1 too little free GPU memory on each GPU")
    stack.create(pod("exact", memory=capacity - 8000, compute=10, node="gpu-a"))
    stack.wait_phase("exact")
    stack.create(pod("one-more", memory=1, compute=1, node="gpu-a"))
    stack.wait_refusal("one-more", "1 too little free GPU memory on each GPU")
    stack.agents.set_foreign("gpu-a", uuid, None)
    stack.wait_phase("one-more", within_s=15)
    stack.check_books()


def test_node_whose_reports_stopped_takes_nothing_new_and_comes_back_by_itself(stack: Stack) -> None:
    stack.create(pod("before", memory=1000, node="gpu-a"))
    stack.wait_phase("before")
    stack.agents.silence("gpu-a")
    wait_for("the node is stale", lambda: seen(stack, "gpu-a")["node_state"] == "stale", within_s=3 * STALE_AFTER_S)
    stack.create(*(pod(f"elsewhere-{number}", memory=1000) for number in range(5)))
    stack.create(pod("waits", memory=1000, node="gpu-a"))
    stack.wait_refusal("waits", "1 no fresh report from the node's GPU agent")
    wait_for("five and one run", lambda: len([p for p in stack.pods() if p["status"].get("phase") == "Running"]) == 6)
    assert {each["spec"]["nodeName"] for each in stack.pods() if "elsewhere" in each["metadata"]["name"]} == {"gpu-b"}
    assert len(stack.check_books()[device(stack, "gpu-a")]) == 1
    stack.agents.restore("gpu-a")
    assert stack.wait_phase("waits", within_s=15)["spec"]["nodeName"] == "gpu-a"
