"""kill -9 of the extender at each step of bind, with answers lost and watches cut: the books come back exact.

::

    read pod ──> assume ──> Binding sent ──> Binding committed ──> answer ──> confirm
       │            └── the proxy holds the request       └── the proxy holds or drops the answer
       └── the proxy holds the read
"""

import random
from collections.abc import Iterator

import pytest

from node_agent.simulated_builders import node_description
from tests.controlplane.conftest import PlaneFactory
from tests.controlplane.faults import Fault, drop_answer, hold, hold_answer, refuse
from tests.controlplane.stack import EXTENDER, Stack, open_stack, pod

PODS_IN_ALL = 300
READ, BINDING, WATCHED = "/pods/[^/]+$", "/binding$", "/(pods|nodes)$"

STEPS: dict[str, tuple[Fault, str, str]] = {
    "before the pod is read": (hold(), "GET", READ),
    "before the Binding arrives, which arrives all the same": (hold(), "POST", BINDING),
    "before the Binding arrives, which never does": (refuse(), "POST", BINDING),
    "the Binding is committed and its answer lost": (drop_answer(), "POST", BINDING),
    "the Binding is committed and its answer under way": (hold_answer(), "POST", BINDING),
}


@pytest.fixture(scope="module")
def stack(start_control_plane: PlaneFactory) -> Iterator[Stack]:
    plane = start_control_plane(users=[EXTENDER])
    fleet = [node_description(f"gpu-{number}", product, 8) for number, product in enumerate(("A100", "T4", "L40S"))]
    fleet += [node_description("gpu-3", "V100", 4), node_description("gpu-4", "H100", 4)]
    with open_stack(plane, fleet, {"TANGRAM_UNKNOWN_SETTLE_S": "5"}) as running:
        yield running


def test_extender_killed_at_each_step_of_bind_keeps_exact_books(stack: Stack) -> None:
    draw = random.Random(5)
    numbers = iter(range(PODS_IN_ALL))
    batch = PODS_IN_ALL // len(STEPS)
    for step, (fault, method, path) in STEPS.items():
        rules = [stack.proxy.add(drop_answer(), "POST", BINDING, times=2)]
        if (method, path) == ("POST", BINDING):
            rules[0].release()
        stack.create(*(fraction(next(numbers), draw) for _ in range(batch // 2)))
        struck = stack.proxy.add(fault, method, path)
        stack.create(*(fraction(next(numbers), draw) for _ in range(batch - batch // 2)))
        struck.wait_hit(within_s=30)
        stack.proxy.cut_watches()
        stack.extender.kill()
        stack.proxy.clear()
        stack.extender.start()
        stack.extender.wait_ready()
        stack.check_books(within_s=30)
        assert struck.hits == 1, step
    stack.proxy.add(drop_answer(), "POST", BINDING, times=5)
    stack.proxy.cut_watches()
    stack.wait_all(PODS_IN_ALL, within_s=120)
    books = stack.check_books()
    assert sum(len(shares) for shares in books.values()) == PODS_IN_ALL


def fraction(number: int, draw: random.Random) -> dict[str, object]:
    return pod(f"fraction-{number}", memory=draw.randrange(500, 3000), compute=draw.randrange(1, 9))
