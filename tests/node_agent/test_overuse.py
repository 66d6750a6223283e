import pytest

from node_agent.overuse import shares
from node_agent.report import Booking, Usage


def booking(pod_uid="u", container="c", memory_mib=1000, compute_milli=250):
    return Booking(
        pod_uid=pod_uid,
        namespace="d",
        name=pod_uid,
        container=container,
        uuid="GPU-a",
        memory_mib=memory_mib,
        compute_milli=compute_milli,
    )


def usage(pod_uid="u", container="c", memory_mib=0, sm_ratio=None, uuid="GPU-a"):
    return Usage(pod_uid=pod_uid, uuid=uuid, memory_mib=memory_mib, container=container, sm_ratio=sm_ratio)


def test_each_sharer_has_its_own_value():
    first, second = shares([booking("a"), booking("b")], [usage("a", memory_mib=5), usage("b", memory_mib=7)])
    assert (first.used_mib, second.used_mib) == (5, 7)


def test_containers_of_a_pod_are_judged_together():
    parts = [booking(container="x"), booking(container="y")]
    [share] = shares(parts, [usage(container="x", memory_mib=1900, sm_ratio=0.45)])
    assert (share.booked_mib, share.over_memory(), share.over_compute()) == (2000, False, False)


@pytest.mark.parametrize(
    ("memory_mib", "sm_ratio", "over_memory", "over_compute"),
    [
        pytest.param(1064, 0.3, False, False, id="within tolerance"),
        pytest.param(1065, 0.25, True, False, id="memory"),
        pytest.param(0, 0.31, False, True, id="SM time"),
        pytest.param(0, None, False, False, id="SM time unknown"),
    ],
)
def test_overuse_begins_beyond_the_tolerance(memory_mib, sm_ratio, over_memory, over_compute):
    [share] = shares([booking()], [usage(memory_mib=memory_mib, sm_ratio=sm_ratio)])
    assert (share.over_memory(), share.over_compute()) == (over_memory, over_compute)


def test_pod_that_uses_nothing_is_listed_with_zero():
    [share] = shares([booking()], [])
    assert (share.used_mib, share.used_ratio) == (0, None)


def test_pod_on_a_device_that_it_did_not_book_has_an_entry_with_nothing_booked():
    first, second = shares([booking()], [usage(memory_mib=900, uuid="GPU-b", sm_ratio=0.2)])
    assert (first.uuid, first.booked_mib, first.used_mib) == ("GPU-a", 1000, 0)
    assert (second.uuid, second.booked_mib, second.used_mib) == ("GPU-b", 0, 900)
    assert second.over_memory()
    assert second.over_compute()
