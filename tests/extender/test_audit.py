from __future__ import annotations

from dataclasses import replace

import pytest

from extender.audit import ADVICE, Kind, audit, books_of, read_books
from extender.holdings import DeviceBooking, ObservedPod
from extender.observing import observe_pod
from node_agent.report import Owner, Usage
from scoring.request import Allocation, Share, SharingMode
from tests.support.builders import A100_MIB, PREFIX, bound, device, node_facts, pod, report, store_with

GIB = 1024


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def _found(store, *pods: ObservedPod) -> list[tuple[Kind, str, str]]:
    books = books_of(store)
    return [(each.kind, each.uuid, each.pod) for each in audit(books.holdings, pods, books)]


def _store(*held, there: tuple[ObservedPod, ...] = (), **settings):
    store = store_with(*(held or (device(),)), **settings)
    for seen in there:
        store.set_pod(seen)
    return store


def test_books_that_agree_have_no_findings():
    seen = bound("a")
    assert _found(_store(there=(seen,)), seen) == []


def test_annotation_without_booking_is_found():
    assert _found(_store(), bound("a")) == [(Kind.ANNOTATION_WITHOUT_BOOKING, "GPU-0", "default/a")]


def test_booking_without_pod_is_found():
    assert _found(_store(there=(bound("a"),))) == [(Kind.BOOKING_WITHOUT_POD, "GPU-0", "default/a")]


def test_pod_that_ran_to_its_end_holds_nothing():
    seen = bound("a")
    assert _found(_store(there=(seen,)), replace(seen, is_over=True)) == [
        (Kind.BOOKING_WITHOUT_POD, "GPU-0", "default/a")
    ]


def test_booking_without_annotation_is_found():
    seen = bound("a")
    bare = replace(seen, allocation=None, booked=())
    assert _found(_store(there=(seen,)), bare) == [(Kind.BOOKING_WITHOUT_ANNOTATION, "GPU-0", "default/a")]


def test_other_amounts_are_found_with_both():
    store, changed = _store(there=(bound("a", memory_mib=8 * GIB),)), bound("a", memory_mib=4 * GIB)
    books = books_of(store)
    (finding,) = audit(books.holdings, [changed], books)
    assert finding.kind is Kind.AMOUNTS_DIFFER
    assert finding.found == "4096 MiB and 10 % in the annotation, 8192 MiB and 10 % in the books"


def test_device_that_gave_too_much_is_found_with_its_pods():
    there = (bound("a", memory_mib=50 * GIB), bound("b", memory_mib=50 * GIB))
    books = books_of(_store(there=there))
    (finding,) = audit(books.holdings, there, books)
    assert (finding.kind, finding.pod) == (Kind.DEVICE_OVER, "default/a, default/b")
    assert finding.found == f"102400 of {A100_MIB} MiB and 20 of 100 % are booked"


def test_device_that_no_agent_reports_is_found():
    seen = bound("a", "GPU-gone")
    assert _found(_store(there=(seen,)), seen) == [(Kind.UNKNOWN_UUID, "GPU-gone", "default/a")]


def test_device_of_a_silent_node_is_not_called_unknown():
    seen = bound("a", "GPU-gone", node="n2")
    assert _found(_store(there=(seen,)), seen) == []


def test_processes_of_no_pod_are_found():
    assert _found(_store(device(foreign_mib=2 * GIB))) == [(Kind.PROCESS_WITHOUT_POD, "GPU-0", "")]


def test_little_memory_of_nobody_is_the_driver():
    assert _found(_store(device(foreign_mib=60))) == []


def test_pod_that_uses_what_it_did_not_book_is_found():
    seen = bound("a", "GPU-0")
    store = _store(device("GPU-0"), device("GPU-1"), there=(seen,))
    used = Usage(pod_uid="uid-a", uuid="GPU-1", memory_mib=500)
    store.apply_report(report("n1", device("GPU-0"), device("GPU-1"), usage=(used,)), 1001.0)
    assert _found(store, seen) == [(Kind.USE_WITHOUT_BOOKING, "GPU-1", "default/a")]


def test_report_of_a_moment_ago_does_not_accuse_a_pod_that_ended_since():
    seen = bound("a")
    store = _store(there=(seen,))
    store.apply_report(report("n1", device(), usage=(Usage(pod_uid="uid-a", uuid="GPU-0", memory_mib=500),)), 1001.0)
    store.release("uid-a")
    assert _found(store) == []


def test_device_with_two_owners_is_found():
    assert _found(_store(device(owner=Owner.CONTRADICTION))) == [(Kind.TWO_OWNERS, "GPU-0", "")]


def test_unreadable_annotation_is_found():
    seen = observe_pod(pod("a", node="n1", annotations={PREFIX + "allocation": "{"}, gpu=1), PREFIX)
    assert _found(_store(there=(seen,)), seen) == [(Kind.UNREADABLE_ANNOTATION, "", "default/a")]


def test_pod_bound_by_somebody_else_is_found():
    seen = observe_pod(pod("a", node="n1", gpu=1), PREFIX)
    assert _found(_store(there=(seen,)), seen) == [(Kind.UNRECORDED, "", "default/a")]


def test_pod_on_its_way_is_no_finding():
    """Booked after the list was made, and released while it was made."""
    store, late, early = _store(), bound("late"), bound("early")
    store.set_pod(early)
    before = books_of(store).holdings
    store.release(early.pod.uid)
    store.set_pod(late)
    assert audit(before, [early], books_of(store)) == ()


def test_two_devices_of_one_pod_are_compared_one_by_one():
    share = Share("GPU-1", 1 * GIB, 10, SharingMode.TIME_SLICING)
    seen = bound("a")
    both = replace(
        seen,
        allocation=Allocation((("main", (*seen.allocation.shares(), share)),), "binpack"),
        booked=(*seen.booked, DeviceBooking("GPU-1", 1 * GIB, 10)),
    )
    store = _store(device("GPU-0"), device("GPU-1"), there=(seen,))
    assert _found(store, both) == [(Kind.ANNOTATION_WITHOUT_BOOKING, "GPU-1", "default/a")]


@pytest.mark.anyio
async def test_books_read_in_turns_are_the_same():
    store, pauses = _store(there=(bound("a"),)), []

    async def pause() -> None:
        pauses.append(1)

    for number in range(250):
        store.set_node(node_facts(f"m{number}"))
    assert await read_books(store, pause) == books_of(store)
    assert len(pauses) == 2


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_says_what_to_do(kind):
    assert len(ADVICE[kind]) > 40
