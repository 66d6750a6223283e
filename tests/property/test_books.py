"""Laws of the books (style guide 2.6)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.holdings import DeviceBooking, Holding, Phase, Reservation
from extender.ledger import Ledger
from extender.store import ClusterStore
from scoring.outlook import Outlook
from scoring.pipeline import evaluate
from scoring.registry import build_policies
from scoring.request import ContainerAsk, PodRequest
from scoring.status import Code
from tests.support.builders import devices, identity, placing, store_with

CAPACITY_MIB = 16_000
NOW = 1000.0

memory = st.one_of(st.none(), st.integers(1, CAPACITY_MIB))
asks = st.builds(
    lambda count, memory_mib, compute: ContainerAsk(
        "main", count, memory_mib, compute if compute or memory_mib else 1000
    ),
    st.integers(1, 3),
    memory,
    st.one_of(st.none(), st.integers(1, 1000)),
)
requests = st.builds(lambda ask: PodRequest(containers=(ask,)), asks)
bookings = st.lists(
    st.builds(DeviceBooking, st.sampled_from(["a", "b", "c"]), st.integers(0, 100), st.integers(0, 100)),
    max_size=3,
    unique_by=lambda booking: booking.uuid,
).map(tuple)
holdings = st.builds(
    lambda number, node, booked, cpu: Holding(identity(str(number)), node, Phase.CONFIRMED, None, booked, cpu),
    st.integers(0, 5),
    st.sampled_from(["n1", "n2"]),
    bookings,
    st.integers(0, 1000),
)


def fresh_store() -> ClusterStore:
    return store_with(*devices(3, total_mib=CAPACITY_MIB))


def columns(store: ClusterStore) -> tuple[bytes, ...]:
    fleet = store.snapshot()
    return tuple(column.tobytes() for column in (fleet.booked_mib, fleet.booked_milli, fleet.sharers))


class TestReservations:
    """No device is ever given more than it has, and assume then forget is identity."""

    @settings(max_examples=60, deadline=None)
    @given(st.lists(requests, max_size=12))
    def test_no_device_is_given_more_than_it_has(self, wanted: list[PodRequest]) -> None:
        store = fresh_store()
        for number, request in enumerate(wanted):
            store.assume(placing(request, f"p{number}"), NOW)
        fleet = store.snapshot()
        assert (fleet.booked_mib <= fleet.capacity_mib).all()
        assert (fleet.booked_milli <= fleet.capacity_milli).all()

    @settings(max_examples=60, deadline=None)
    @given(st.lists(requests, max_size=4), requests)
    def test_assume_then_forget_is_identity(self, before: list[PodRequest], request: PodRequest) -> None:
        store = fresh_store()
        for number, earlier in enumerate(before):
            store.assume(placing(earlier, f"p{number}"), NOW)
        was = columns(store)
        reserved = store.assume(placing(request, "last"), NOW)
        if isinstance(reserved, Reservation):
            assert columns(store) != was
            store.forget(reserved.token)
        assert columns(store) == was

    @settings(max_examples=60, deadline=None)
    @given(st.lists(requests, max_size=6), requests)
    def test_filter_says_yes_exactly_where_assume_finds_room(
        self, before: list[PodRequest], request: PodRequest
    ) -> None:
        store = fresh_store()
        for number, earlier in enumerate(before):
            store.assume(placing(earlier, f"p{number}"), NOW)
        policy = build_policies()["binpack"]
        judged = evaluate(request, store.snapshot(), policy, Outlook.empty())
        reserved = store.assume(placing(request, "last"), NOW)
        assert (judged.code[0] == Code.FIT) == isinstance(reserved, Reservation)

    @settings(max_examples=60, deadline=None)
    @given(st.lists(requests, min_size=1, max_size=6), requests)
    def test_one_more_allocation_never_makes_room(self, before: list[PodRequest], request: PodRequest) -> None:
        store, policy = fresh_store(), build_policies()["binpack"]
        fits = []
        for number, earlier in enumerate(before):
            judged = evaluate(request, store.snapshot(), policy, Outlook.empty())
            fits.append(bool(judged.code[0] == Code.FIT))
            store.assume(placing(earlier, f"p{number}"), NOW)
        assert fits == sorted(fits, reverse=True)


class TestLedger:
    """Sums equal the entries, whatever was put and dropped before."""

    @given(st.lists(st.one_of(holdings, st.integers(0, 5)), max_size=30))
    def test_sums_equal_the_entries(self, steps: list[Holding | int]) -> None:
        ledger, kept = Ledger(tombstones=16), {}
        for step in steps:
            if isinstance(step, int):
                ledger.drop(f"uid-{step}")
                kept.pop(f"uid-{step}", None)
            else:
                ledger.put(step)
                kept[step.pod.uid] = step
        for node in ("n1", "n2"):
            there = [holding for holding in kept.values() if holding.node == node]
            assert ledger.node_amounts(node)[0] == sum(holding.cpu_milli for holding in there)
            assert {holding.pod.uid for holding in ledger.on_node(node)} == {holding.pod.uid for holding in there}
            for uuid in ("a", "b", "c"):
                booked = [entry for holding in there for entry in holding.booked if entry.uuid == uuid]
                found = ledger.device(node, uuid)
                assert (found.memory_mib, found.compute_milli, len(found.uids)) == (
                    sum(entry.memory_mib for entry in booked),
                    sum(entry.compute_milli for entry in booked),
                    len(booked),
                )

    @given(st.lists(st.integers(0, 100), max_size=60))
    def test_memory_of_the_gone_is_bounded_and_keeps_the_latest(self, numbers: list[int]) -> None:
        ledger = Ledger(tombstones=16)
        for number in numbers:
            ledger.bury(str(number))
        latest = list(dict.fromkeys(reversed(numbers)))[:16]
        assert all(ledger.is_gone(str(number)) for number in latest)
        assert sum(ledger.is_gone(str(number)) for number in range(101)) <= 16
