"""Victims: an eviction must make room by our own filter's lights, and take no pod that could be spared."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.holdings import Holding
from extender.store import ClusterStore
from scoring.outlook import Outlook
from scoring.preemption import Candidate, Preemptor, choose_victims, keep_node
from scoring.registry import build_policies
from scoring.request import PodRequest
from tests.support.builders import bound, devices, identity, share_request, store_with, whole_request

CAPACITY_MIB = 16_000


def preemptor(request: PodRequest, priority: int = 10) -> Preemptor:
    return Preemptor(request, priority, build_policies()["binpack"], Outlook.empty())


def occupied(*pods: tuple[str, int, int, int], count: int = 2) -> tuple[ClusterStore, list[Candidate]]:
    """Return a node with these pods: name, slot, MiB, priority; compute is one thousandth per 16 MiB."""
    store = store_with(*devices(count, total_mib=CAPACITY_MIB))
    for name, slot, mib, priority in pods:
        store.set_pod(bound(name, f"GPU-{slot}", mib, mib // 16, pod=identity(name, priority=priority)))
    return store, [_candidate(holding) for holding in store.ledger.on_node("n1")]


def _candidate(holding: Holding) -> Candidate:
    booked = tuple((int(entry.uuid[-1]), entry.memory_mib, entry.compute_milli) for entry in holding.booked)
    return Candidate(holding.pod.uid, holding.pod.priority, booked)


def chosen(
    store: ClusterStore, candidates: list[Candidate], request: PodRequest, priority: int = 10
) -> set[str] | None:
    victims = choose_victims(preemptor(request, priority), store.snapshot(), 0, candidates)
    return None if victims is None else {victim.uid.removeprefix("uid-") for victim in victims}


def test_room_that_is_there_needs_no_victim() -> None:
    store, candidates = occupied(("a", 0, 8000, 1))
    assert chosen(store, candidates, share_request(8000)) == set()


def test_the_lowest_priority_goes_first() -> None:
    store, candidates = occupied(("low", 0, 12_000, 1), ("mid", 1, 12_000, 5))
    assert chosen(store, candidates, share_request(12_000)) == {"low"}


def test_one_larger_pod_goes_rather_than_two_of_its_priority() -> None:
    store, candidates = occupied(("small-1", 0, 8000, 1), ("small-2", 0, 8000, 1), ("large", 1, 16_000, 1))
    assert chosen(store, candidates, whole_request()) == {"large"}


def test_a_pod_that_need_not_go_is_spared() -> None:
    store, candidates = occupied(("tiny", 0, 1000, 1), ("big", 0, 14_000, 2), count=1)
    assert chosen(store, candidates, share_request(14_000)) == {"big"}


def test_equal_and_higher_priorities_are_never_taken() -> None:
    store, candidates = occupied(("peer", 0, 16_000, 10), ("boss", 1, 16_000, 99))
    assert chosen(store, candidates, share_request(1)) is None


def test_several_devices_may_need_victims_on_each() -> None:
    store, candidates = occupied(("a", 0, 8000, 1), ("b", 1, 8000, 1))
    assert chosen(store, candidates, whole_request(2)) == {"a", "b"}


def test_a_request_that_no_eviction_can_serve_has_no_victims() -> None:
    store, candidates = occupied(("a", 0, 8000, 1))
    assert chosen(store, candidates, share_request(CAPACITY_MIB + 1)) is None


def test_a_node_where_the_eviction_frees_too_little_is_not_kept() -> None:
    store, candidates = occupied(("a", 0, 8000, 1), ("b", 0, 8000, 1), ("c", 1, 16_000, 20))
    assert not keep_node(preemptor(share_request(9000)), store.snapshot(), 0, candidates[:1])
    assert keep_node(preemptor(share_request(9000)), store.snapshot(), 0, candidates[:2])


class TestLaws:
    """Chosen victims are of lower priority, make room, and none of them can be spared."""

    @settings(max_examples=40, deadline=None)
    @given(
        st.lists(st.tuples(st.integers(0, 1), st.integers(500, 8000), st.integers(0, 12)), max_size=6),
        st.integers(1, CAPACITY_MIB),
    )
    def test_victims_are_enough_and_not_one_too_many(self, pods: list[tuple[int, int, int]], asked: int) -> None:
        store, candidates = occupied(*((f"p{at}", slot, mib, prio) for at, (slot, mib, prio) in enumerate(pods)))
        asker, fleet = preemptor(share_request(asked)), store.snapshot()
        victims = choose_victims(asker, fleet, 0, candidates)
        if victims is None:
            everyone = [entry for entry in candidates if entry.priority < asker.priority]
            assert not keep_node(asker, fleet, 0, everyone)
            return
        assert all(victim.priority < asker.priority for victim in victims)
        assert keep_node(asker, fleet, 0, victims)
        for spared in victims:
            assert not keep_node(asker, fleet, 0, [entry for entry in victims if entry is not spared])
