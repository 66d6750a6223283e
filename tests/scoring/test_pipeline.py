from __future__ import annotations

import numpy as np
import pytest

from scoring.outlook import Outlook
from scoring.pipeline import allocation_on, booked_by, evaluate, levels, verdict
from scoring.request import Allocation, ContainerKind, Share, SharingMode
from scoring.status import FITS, Code, Reason, Verdict
from tests.support.fleets import BINPACK, GIB, asks, fleet, gpu, place_on, share, whole

INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        pytest.param([], [], id="no node"),
        pytest.param([0.3], [10], id="one node"),
        pytest.param([0.0, 1.0], [0, 10], id="worst and best"),
        pytest.param([0.2, 0.6, 0.4], [0, 10, 4], id="in proportion"),  # 9 * 0.2 / 0.4 = 4.5 -> 4
        pytest.param([0.5, 0.5, 0.5], [10, 9, 9], id="equal ones"),
        pytest.param([0.5, 0.4999, 0.1], [10, 8, 0], id="almost the best"),  # 9 * 0.3999 / 0.4 = 8.998
        pytest.param([0.5, 0.1, 0.5], [10, 0, 9], id="two best"),
    ],
)
def test_levels_have_one_ten_and_share_the_rest(scores, expected):
    order = np.arange(len(scores), dtype=np.uint32)
    assert levels(np.array(scores, np.float64), order).tolist() == expected


def test_the_lowest_order_wins_among_equals():
    assert levels(np.array([0.5, 0.5, 0.1]), np.array([7, 3, 1], np.uint32)).tolist() == [9, 10, 0]


def test_verdicts_are_read_by_row():
    found = evaluate(asks(share(GIB)), fleet(a=[gpu()], b=[gpu(free_mib=0)]), BINPACK, Outlook.empty())
    assert verdict(found, 0) is FITS
    assert verdict(found, 1) == Verdict(Code.UNSCHEDULABLE, Reason.INSUFFICIENT_MEMORY)


def test_a_node_that_refuses_gives_its_verdict_instead_of_shares():
    found = allocation_on(asks(whole(2)), fleet(a=[gpu()]), 0, BINPACK, Outlook.empty())
    assert found == Verdict(Code.UNRESOLVABLE, Reason.TOO_FEW_DEVICES)


def test_an_allocation_names_policy_containers_and_shares():
    found = place_on(asks(share(4 * GIB, name="a"), share(None, 250, name="b")), fleet(a=[gpu()])).allocation
    assert found.policy == "binpack"
    assert found.containers == (
        ("a", (Share("GPU-a-0", 4 * GIB, 250, SharingMode.TIME_SLICING),)),
        ("b", (Share("GPU-a-0", 4 * GIB, 250, SharingMode.TIME_SLICING),)),
    )
    assert len(found.shares()) == 2


def _allocation(**containers: list[tuple[str, int, int]]) -> Allocation:
    return Allocation(
        tuple((name, tuple(Share(*one, SharingMode.MPS) for one in shares)) for name, shares in containers.items()), "p"
    )


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        pytest.param({"a": APP, "b": APP}, {"x": (30, 5), "y": (7, 1)}, id="side by side"),
        pytest.param({"a": INIT, "b": APP}, {"x": (20, 3), "y": (7, 1)}, id="one after the other"),
        pytest.param({"a": SIDECAR, "b": INIT}, {"x": (30, 5), "y": (7, 1)}, id="init beside an earlier sidecar"),
        pytest.param({"b": INIT, "a": SIDECAR}, {"x": (20, 3), "y": (7, 1)}, id="init before a sidecar"),
        pytest.param({"a": INIT}, {"x": (20, 3), "y": (7, 1)}, id="a container without a kind counts as app"),
        pytest.param({}, {"x": (30, 5), "y": (7, 1)}, id="no kinds"),
        pytest.param({"z": INIT, "a": APP, "b": INIT}, {"x": (20, 3), "y": (7, 1)}, id="a container without shares"),
    ],
)
def test_a_device_books_the_most_that_any_phase_takes(kinds, expected):
    allocation = _allocation(a=[("x", 10, 2)], b=[("x", 20, 3), ("y", 7, 1)])
    assert booked_by(allocation, kinds) == expected


def test_most_is_taken_of_each_dimension_apart():
    allocation = _allocation(a=[("x", 10, 9)], b=[("x", 20, 3)])
    assert booked_by(allocation, {"a": INIT, "b": APP}) == {"x": (20, 9)}
