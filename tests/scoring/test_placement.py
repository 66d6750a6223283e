from __future__ import annotations

import numpy as np
import pytest

from scoring.exact import STEPS
from scoring.fleet import DeviceState, ModeCode
from scoring.outlook import Outlook
from scoring.pipeline import evaluate, verdict
from scoring.placement import FEWEST_STEPS, STEPS_OF_ALL, _steps_each, place
from scoring.request import ContainerKind, SharingMode, Topology
from scoring.status import Code, Reason
from tests.support.fleets import (
    A100,
    BINPACK,
    GIB,
    MIG_10GB,
    MIG_20GB,
    T4,
    asks,
    fleet,
    gpu,
    place_on,
    reason,
    share,
    slots_on,
    whole,
)

INIT, SIDECAR = ContainerKind.INIT, ContainerKind.SIDECAR
MIG = frozenset({SharingMode.MIG})
EXCLUSIVE = frozenset({SharingMode.EXCLUSIVE})


def test_smallest_sufficient_mig_instance_is_taken():
    of = fleet(a=[gpu(MIG_20GB), gpu(MIG_10GB), gpu(MIG_10GB)])
    assert slots_on(asks(share(4 * GIB), sharing=MIG), of) == [(1,)]


def test_mig_instance_that_is_too_small_is_never_taken():
    of = fleet(a=[gpu(MIG_10GB), gpu(MIG_20GB)])
    assert slots_on(asks(share(15 * GIB), sharing=MIG), of) == [(1,)]


def test_mig_instance_is_booked_whole_and_given_to_one_pod():
    placed = place_on(asks(share(4 * GIB), sharing=MIG), fleet(a=[gpu(MIG_10GB)]))
    assert placed.booked == ((0, 9_728, 142),)
    assert reason(asks(share(1 * GIB), sharing=MIG), gpu(MIG_10GB, booked_mib=9_728, booked_milli=142)) is not None


def test_mig_instance_is_never_given_to_a_plain_request():
    assert reason(asks(whole()), gpu(MIG_10GB)) is Reason.NO_SHARING_MODE
    assert reason(asks(share(1 * GIB)), gpu(MIG_10GB)) is Reason.NO_SHARING_MODE


def test_exclusive_share_is_never_put_on_a_device_that_is_too_small():
    of = fleet(a=[gpu(T4), gpu(A100)])
    assert slots_on(asks(share(40 * GIB), sharing=EXCLUSIVE), of) == [(1,)]


def test_exclusive_or_mig_books_an_ordinary_device_whole():
    either = frozenset({SharingMode.EXCLUSIVE, SharingMode.MIG})
    placed = place_on(asks(share(4 * GIB), sharing=either), fleet(a=[gpu(T4)]))
    assert placed.booked == ((0, 16_384, 1000),)
    assert placed.allocation.shares()[0].mode is SharingMode.EXCLUSIVE


def test_exclusive_or_time_slicing_shares_a_device_that_is_shared_anyhow():
    either = frozenset({SharingMode.EXCLUSIVE, SharingMode.TIME_SLICING})
    placed = place_on(asks(share(4 * GIB), sharing=either), fleet(a=[gpu(T4)]))
    # 1000 * 4096 / 16384 = 250
    assert placed.booked == ((0, 4096, 250),)


def test_mps_share_goes_to_an_mps_device():
    of = fleet(a=[gpu(T4), gpu(T4, mode=ModeCode.MPS)])
    placed = place_on(asks(share(4 * GIB), sharing=frozenset({SharingMode.MPS})), of)
    assert [(one.uuid, one.mode) for one in placed.allocation.shares()] == [("GPU-a-1", SharingMode.MPS)]


def test_devices_of_nvidias_plugin_are_left_to_it():
    assert reason(asks(share(4 * GIB)), gpu(T4, mode=ModeCode.PLUGIN)) is Reason.NO_SHARING_MODE


def test_only_the_container_that_asks_whole_devices_is_alone_on_them():
    placed = place_on(asks(whole(name="train"), share(2 * GIB, name="log")), fleet(a=[gpu(T4), gpu(T4)]))
    modes = {name: shares[0].mode for name, shares in placed.allocation.containers}
    assert modes == {"train": SharingMode.EXCLUSIVE, "log": SharingMode.TIME_SLICING}


@pytest.mark.parametrize(
    ("ask", "booked"),
    [
        pytest.param(share(8192), (8192, 500), id="compute follows memory"),  # 1000 * 8192 / 16384
        pytest.param(share(8193), (8193, 500), id="compute is rounded down"),  # 500.06
        pytest.param(
            share(None, 333), (5455, 333), id="memory follows compute, rounded down"
        ),  # 16384 * 0.333 = 5455.9
        pytest.param(share(1000, 1000), (1000, 1000), id="both named"),
        pytest.param(whole(), (16_384, 1000), id="whole"),
        pytest.param(share(8), (8, 0), id="compute too small to count"),  # 1000 * 8 / 16384 = 0.49
    ],
)
def test_books_of_one_share(ask, booked):
    assert place_on(asks(ask), fleet(a=[gpu(T4)])).booked == ((0, *booked),)


def test_a_share_that_would_book_no_memory_is_refused():
    # 500 MiB * 1 / 1000 = 0.5 -> 0
    assert reason(asks(share(None, 1)), gpu(T4, capacity_mib=500)) is Reason.DEVICE_TOO_SMALL


def test_several_devices_of_one_container_are_different():
    assert slots_on(asks(share(1 * GIB, count=3)), fleet(a=[gpu(), gpu(), gpu()])) == [(0, 1, 2)]


def test_containers_of_one_pod_may_share_a_device():
    both = asks(share(6 * GIB, name="a"), share(6 * GIB, name="b"))
    assert place_on(both, fleet(a=[gpu(T4)])).booked == ((0, 12 * GIB, 750),)


def test_containers_never_exceed_a_device_together():
    both = asks(share(9 * GIB, name="a"), share(9 * GIB, name="b"))
    of = fleet(a=[gpu(T4)])
    found = evaluate(both, of, BINPACK, Outlook.empty())
    assert verdict(found, 0).reason is Reason.CONTAINERS_DO_NOT_FIT
    # An empty node could not hold them either.
    assert verdict(found, 0).code is Code.UNRESOLVABLE


def test_containers_that_would_fit_an_emptied_node_may_wait():
    both = asks(share(7 * GIB, name="a"), share(7 * GIB, name="b"))
    found = evaluate(both, fleet(a=[gpu(T4, free_mib=10 * GIB)]), BINPACK, Outlook.empty())
    assert (verdict(found, 0).code, verdict(found, 0).reason) == (Code.UNSCHEDULABLE, Reason.CONTAINERS_DO_NOT_FIT)


def test_containers_that_would_fit_healed_devices_may_wait():
    both = asks(whole(name="a"), share(7 * GIB, name="b"))
    found = evaluate(both, fleet(a=[gpu(T4), gpu(T4, device_state=DeviceState.OUT)]), BINPACK, Outlook.empty())
    assert (verdict(found, 0).code, verdict(found, 0).reason) == (Code.UNSCHEDULABLE, Reason.CONTAINERS_DO_NOT_FIT)


def test_a_tight_pod_that_the_greedy_pass_misplaces_is_placed_exactly():
    # Largest first, fullest device first: 7 into 10 leaves 3, 6 into 12 leaves 6, 5 into 6 leaves 1, 4 finds 3 and 1.
    # The only way is 6 + 4 in 10 and 7 + 5 in 12; compute 375 + 250 = 625 and 437 + 312 = 749 (437.5, 312.5 down).
    pod = asks(*(share(size * GIB, name=f"c{size}") for size in (7, 6, 5, 4)))
    of = fleet(a=[gpu(T4, free_mib=10 * GIB), gpu(T4, free_mib=12 * GIB)])
    placed = place_on(pod, of)
    assert sorted(placed.booked) == [(0, 10 * GIB, 625), (1, 12 * GIB, 749)]


def test_scores_of_exactly_placed_nodes_stay_in_range():
    pod = asks(*(share(size * GIB, name=f"c{size}") for size in (7, 6, 5, 4)))
    found = place(pod, fleet(a=[gpu(T4, free_mib=10 * GIB), gpu(T4, free_mib=12 * GIB)]), BINPACK, Outlook.empty())
    assert 0 < found.score[0] <= 1


def test_init_container_reuses_what_the_pod_holds_anyhow():
    pod = asks(share(4 * GIB, name="init", kind=INIT), share(8 * GIB, name="app"))
    of = fleet(a=[gpu(T4, free_mib=5 * GIB), gpu(T4)])
    # On its own the init container would fill the fuller device.
    assert slots_on(asks(pod.containers[0]), of) == [(0,)]
    assert place_on(pod, of).booked == ((1, 8 * GIB, 500),)


def test_larger_init_container_grows_the_booking_where_the_pod_is():
    pod = asks(share(12 * GIB, name="init", kind=INIT), share(14 * GIB, None, name="app", kind=INIT), share(8 * GIB))
    of = fleet(a=[gpu(T4, free_mib=14 * GIB), gpu(T4, free_mib=9 * GIB), gpu(T4)])
    # The app fills the second device and neither init container fits there; both then share one of the others.
    assert place_on(pod, of).booked == ((0, 14 * GIB, 875), (1, 8 * GIB, 500))


def test_a_pod_of_init_containers_only_books_the_largest():
    pod = asks(share(4 * GIB, name="one", kind=INIT), share(6 * GIB, name="two", kind=INIT))
    assert place_on(pod, fleet(a=[gpu(T4)])).booked == ((0, 6 * GIB, 375),)


def test_request_without_devices_is_refused():
    with pytest.raises(ValueError, match="without devices"):
        place(asks(), fleet(a=[gpu()]), BINPACK, Outlook.empty())


def test_request_for_more_devices_than_memory_could_hold_costs_nothing():
    found = place(asks(whole(10**9)), fleet(a=[gpu()]), BINPACK, Outlook.empty())
    assert (int(found.code[0]), found.slots) == (Code.UNRESOLVABLE, ())


def test_huge_amounts_are_refused_and_not_wrapped():
    assert reason(asks(share(2**62)), gpu(A100)) is Reason.DEVICE_TOO_SMALL
    assert reason(asks(share(None, 2**62)), gpu(A100)) is Reason.DEVICE_TOO_SMALL


def test_an_empty_fleet_has_an_empty_answer():
    found = place(asks(whole()), fleet(), BINPACK, Outlook.empty())
    assert found.code.shape == found.score.shape == (0,)


def _groups(column: str, *groups: int, **values: int):
    return fleet(a=[gpu(T4, **{column: group}, **values) for group in groups])


@pytest.mark.parametrize(("column", "topology"), [("numa", Topology.NUMA), ("link", Topology.NVLINK)])
class TestDemandedTopology:
    def test_devices_come_from_one_group(self, column, topology):
        of = _groups(column, 0, 1, 1, 0, 1)
        assert slots_on(asks(whole(3), topology=topology), of) == [(1, 2, 4)]

    def test_no_group_large_enough_is_refused_for_good(self, column, topology):
        found = evaluate(asks(whole(3), topology=topology), _groups(column, 0, 0, 1, 1), BINPACK, Outlook.empty())
        assert (verdict(found, 0).reason, verdict(found, 0).code) == (Reason.TOPOLOGY, Code.UNRESOLVABLE)

    def test_group_that_is_busy_may_be_waited_for(self, column, topology):
        of = fleet(a=[gpu(T4, **{column: 0}), gpu(T4, free_mib=0, **{column: 0}), gpu(T4, **{column: 1})])
        found = evaluate(asks(whole(2), topology=topology), of, BINPACK, Outlook.empty())
        assert (verdict(found, 0).reason, verdict(found, 0).code) == (Reason.TOPOLOGY, Code.UNSCHEDULABLE)

    def test_ungrouped_devices_are_close_to_none(self, column, topology):
        assert reason(asks(whole(2), topology=topology), gpu(T4), gpu(T4)) is Reason.TOPOLOGY

    def test_one_device_is_close_to_itself(self, column, topology):
        assert reason(asks(whole(1), topology=topology), gpu(T4)) is None

    def test_groups_hold_for_each_container_on_its_own(self, column, topology):
        of = _groups(column, 0, 0, 1, 1)
        pod = asks(whole(2, name="a"), whole(2, name="b"), topology=topology)
        assert sorted(slots_on(pod, of)) == [(0, 1), (2, 3)]


def test_close_devices_are_taken_where_nothing_is_demanded():
    of = fleet(a=[gpu(numa=0), gpu(numa=1), gpu(numa=1, link=0), gpu(numa=1, link=0)])
    assert slots_on(asks(whole(2)), of) == [(2, 3)]


def test_one_node_gets_the_value_that_it_has_in_the_fleet():
    rng = np.random.default_rng(7)
    devices = [
        [gpu(A100, free_mib=int(free), load=float(free) / 90_000) for free in row]
        for row in rng.integers(20_000, 81_920, (50, 8))
    ]
    of = fleet(**{f"n{number}": row for number, row in enumerate(devices)})
    many = place(asks(share(10_000)), of, BINPACK, Outlook.empty())
    ones = [
        place(asks(share(10_000)), of.take(np.array([row])), BINPACK, Outlook.empty()).score[0] for row in range(50)
    ]
    assert many.score.tolist() == [float(one) for one in ones]


def test_nodes_in_the_same_tight_state_get_the_same_answer():
    pod = asks(*(share(size * GIB, name=f"c{size}") for size in (7, 6, 5, 4)))
    tight = [gpu(T4, free_mib=10 * GIB), gpu(T4, free_mib=12 * GIB)]
    found = place(
        pod,
        fleet(a=tight, b=tight, c=[gpu(T4, free_mib=9 * GIB), gpu(T4, free_mib=12 * GIB)]),
        BINPACK,
        Outlook.empty(),
    )
    assert found.code.tolist() == [Code.FIT, Code.FIT, Code.UNSCHEDULABLE]
    assert found.slots[0].tolist() == [[1, 1, -1]]
    assert found.score[0] == found.score[1]


def test_nodes_share_the_steps_of_exact_search():
    assert _steps_each(1) == STEPS
    assert _steps_each(1_000) == STEPS_OF_ALL // 1_000 == 100
    assert _steps_each(10**6) == FEWEST_STEPS
