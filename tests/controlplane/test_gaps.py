"""Cases B5, B6 and B7: pods that go while the watch is down, come again by the same name, or end during a restart."""

from collections.abc import Iterator

import pytest

from node_agent.simulated_builders import node_description
from tests.controlplane.api import wait_for
from tests.controlplane.books import booked
from tests.controlplane.conftest import PlaneFactory
from tests.controlplane.faults import gone, refuse
from tests.controlplane.kubelet import STOP_SECONDS
from tests.controlplane.stack import EXTENDER, Stack, open_stack, pod

WATCH_OF_PODS = "/api/v1/pods$"
DEVICES = 8


@pytest.fixture(scope="module")
def running(start_control_plane: PlaneFactory) -> Iterator[Stack]:
    plane = start_control_plane(users=[EXTENDER])
    with open_stack(plane, [node_description("gpu-a", "L4", DEVICES)]) as stack:
        yield stack


@pytest.fixture
def stack(running: Stack) -> Iterator[Stack]:
    yield running
    running.clear()


def uid(stack: Stack, name: str) -> str:
    return str(stack.pod(name)["metadata"]["uid"])


def holders(stack: Stack) -> set[str]:
    return {share.pod_uid for shares in booked(stack.fleet()).values() for share in shares}


def take_watch_down(stack: Stack) -> None:
    """Cut the extender's watch of pods; nothing of it comes back until the proxy's rules are cleared."""
    stack.proxy.add(refuse(), "GET", WATCH_OF_PODS, times=None)
    stack.proxy.cut_watches()


def test_b5_pod_deleted_while_the_watch_is_down_frees_its_devices(stack: Stack) -> None:
    stack.create(pod("whole", devices=DEVICES))
    stack.wait_phase("whole")
    first = uid(stack, "whole")
    take_watch_down(stack)
    stack.delete("whole")
    stack.create(pod("whole", devices=DEVICES))
    stack.wait_refusal("whole", "1 too few GPUs that nobody uses")
    assert holders(stack) == {first}
    stack.proxy.clear()
    stack.proxy.add(gone(), "GET", WATCH_OF_PODS, watch=True)  # only a relist shows the deletion
    stack.wait_phase("whole", within_s=60)
    assert holders(stack) == {uid(stack, "whole")} != {first}
    stack.check_books()


@pytest.mark.parametrize("by_relist", [False, True], ids=["the event comes late", "only a relist shows it"])
def test_b6_late_word_of_a_deleted_pod_frees_only_that_pod(stack: Stack, by_relist: bool) -> None:
    stack.create(pod("again", devices=2))
    stack.wait_phase("again")
    first = uid(stack, "again")
    take_watch_down(stack)
    stack.delete("again")
    stack.create(pod("again", devices=2))
    stack.wait_phase("again")
    assert holders(stack) == {first, uid(stack, "again")}
    stack.proxy.clear()
    if by_relist:
        stack.proxy.add(gone(), "GET", WATCH_OF_PODS, watch=True)
    wait_for("only the first is freed", lambda: holders(stack) == {uid(stack, "again")}, within_s=60)
    stack.check_books()


def test_b7_share_of_a_terminating_pod_counts_through_a_restart_until_it_is_gone(stack: Stack) -> None:
    stack.create(pod("leaves", annotations={STOP_SECONDS: "300"}, devices=DEVICES))
    stack.wait_phase("leaves")
    leaving = uid(stack, "leaves")
    stack.delete("leaves", grace_s=300)
    stack.extender.kill()
    stack.extender.start()
    stack.extender.wait_ready()
    assert "deletionTimestamp" in stack.pod("leaves")["metadata"]
    wait_for("the agent reported, and the share shows", lambda: holders(stack) == {leaving})
    stack.create(pod("follows", devices=DEVICES))
    stack.wait_refusal("follows", "1 too few GPUs that nobody uses")
    stack.delete("leaves")
    stack.wait_phase("follows", within_s=60)
    assert holders(stack) == {uid(stack, "follows")}
