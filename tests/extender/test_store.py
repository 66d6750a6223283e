"""The store's verbs, one behaviour a test."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from extender.errors import BoundElsewhere, PodReplaced
from extender.holdings import Holding, ObservedPod, Phase, Reservation
from extender.intake import InvalidReport
from extender.store import ClusterStore, UnknownNode
from node_agent.report import Health, NodeState, Owner
from scoring.fleet import DeviceState
from scoring.fleet import NodeState as FleetState
from scoring.status import Reason, Verdict
from tests.support.builders import (
    A100_MIB,
    bound,
    device,
    devices,
    identity,
    node_facts,
    placing,
    report,
    share_request,
    store_with,
    whole_request,
)

NOW = 1000.0


def booked(store: ClusterStore, slot: int = 0, node: str = "n1") -> tuple[int, int, int]:
    fleet = store.snapshot()
    row = fleet.rows[node]
    return int(fleet.booked_mib[slot, row]), int(fleet.booked_milli[slot, row]), int(fleet.sharers[slot, row])


def state_of(store: ClusterStore, node: str = "n1") -> FleetState:
    fleet = store.snapshot()
    return FleetState(int(fleet.node_state[fleet.rows[node]]))


def reserve(store: ClusterStore, name: str = "p", memory_mib: int = 8192, now: float = NOW) -> Reservation:
    reservation = store.assume(placing(share_request(memory_mib), name), now)
    assert isinstance(reservation, Reservation)
    return reservation


class TestAssume:
    def test_assume_books_the_share_at_once(self) -> None:
        store = store_with(device())
        reservation = reserve(store)
        assert reservation.allocation.shares()[0].uuid == "GPU-0"
        assert booked(store) == (8192, 100, 1)

    def test_assume_twice_returns_the_same_reservation_and_books_once(self) -> None:
        store = store_with(device())
        assert reserve(store) == reserve(store)
        assert booked(store) == (8192, 100, 1)

    def test_assume_then_forget_leaves_the_books_as_they_were(self) -> None:
        store = store_with(device())
        before = booked(store)
        store.forget(reserve(store).token)
        assert booked(store) == before
        assert store.ledger.get("uid-p") is None

    def test_forget_with_an_old_token_removes_nothing(self) -> None:
        store = store_with(device())
        first = reserve(store)
        store.forget(first.token)
        reserve(store)
        store.forget(first.token)
        assert booked(store) == (8192, 100, 1)

    def test_forget_after_confirm_removes_nothing(self) -> None:
        store = store_with(device())
        reservation = reserve(store)
        store.confirm(reservation.token)
        store.forget(reservation.token)
        assert booked(store) == (8192, 100, 1)

    def test_assume_on_another_node_while_the_first_is_open_is_refused(self) -> None:
        store = store_with(device())
        store.set_node(node_facts("n2"))
        store.apply_report(report("n2", device("GPU-9")), NOW)
        reserve(store)
        with pytest.raises(BoundElsewhere, match="being bound to node n1"):
            store.assume(placing(share_request(), node="n2"), NOW)

    def test_assume_on_a_full_device_is_a_verdict(self) -> None:
        store = store_with(device())
        reserve(store, "first", A100_MIB)
        verdict = store.assume(placing(share_request(), "second"), NOW)
        assert isinstance(verdict, Verdict)
        assert verdict.reason is Reason.INSUFFICIENT_MEMORY

    def test_assume_on_an_unknown_node_is_a_verdict(self) -> None:
        verdict = store_with(device()).assume(placing(share_request(), node="nowhere"), NOW)
        assert verdict == Verdict(verdict.code, Reason.UNKNOWN_NODE)  # type: ignore[union-attr]

    def test_a_pod_that_is_gone_is_not_reserved_again(self) -> None:
        store = store_with(device())
        store.release("uid-p")
        with pytest.raises(PodReplaced):
            store.assume(placing(share_request()), NOW)

    def test_pod_that_is_gone_no_longer_counts_as_fresh_load(self) -> None:
        store = store_with(device())
        reserve(store)
        store.release("uid-p")
        assert store.snapshot().settling_milli[0, 0] == 0

    def test_fresh_placements_count_as_load_until_they_settle(self) -> None:
        store = store_with(device())
        reserve(store)
        assert store.snapshot().settling_milli[0, 0] == 100
        store.expire(NOW + 31)
        assert store.snapshot().settling_milli[0, 0] == 0


class TestWatch:
    def test_a_bound_pod_that_nobody_assumed_is_booked(self) -> None:
        store = store_with(device())
        store.set_pod(bound("a"))
        assert booked(store) == (8192, 100, 1)

    def test_the_watch_confirms_what_was_assumed(self) -> None:
        store = store_with(device())
        reservation = reserve(store, "a")
        store.doubt(reservation.token)
        store.set_pod(bound("a"))
        holding = store.ledger.get("uid-a")
        assert holding is not None
        assert (holding.phase, holding.token, holding.outcome_unknown) == (Phase.CONFIRMED, None, False)
        assert booked(store) == (8192, 100, 1)

    def test_an_allocation_in_the_annotations_wins_over_what_was_assumed(self) -> None:
        store = store_with(*devices(2))
        reserve(store, "a")
        store.set_pod(bound("a", uuid="GPU-1", memory_mib=100, compute_milli=7))
        assert booked(store, 0) == (0, 0, 0)
        assert booked(store, 1) == (100, 7, 1)

    def test_a_pending_pod_changes_no_books(self) -> None:
        store = store_with(device())
        reserve(store, "a")
        store.set_pod(ObservedPod(identity("a"), request=share_request()))
        assert booked(store) == (8192, 100, 1)

    def test_a_read_that_is_older_than_the_deletion_brings_nothing_back(self) -> None:
        store = store_with(device())
        store.set_pod(bound("a"))
        store.release("uid-a")
        store.set_pod(bound("a"))
        assert booked(store) == (0, 0, 0)

    def test_shares_on_an_unreported_device_wait_for_it(self) -> None:
        store = ClusterStore(store_with(device())._settings)
        store.set_node(node_facts())
        store.set_pod(bound("a", uuid="GPU-7"))
        store.apply_report(report("n1", device("GPU-0"), device("GPU-7")), NOW)
        assert booked(store, 0) == (0, 0, 0)
        assert booked(store, 1) == (8192, 100, 1)

    def test_a_pod_without_allocation_makes_its_node_conflicted_until_it_is_gone(self) -> None:
        store = store_with(device())
        store.set_pod(ObservedPod(identity("a"), node="n1", request=share_request(), problem="nobody knows"))
        assert state_of(store) is FleetState.CONFLICTED
        assert store.ledger.problems("n1") == ("pod default/a: nobody knows",)
        store.release("uid-a")
        assert state_of(store) is FleetState.FRESH

    def test_cpu_and_host_memory_of_all_pods_are_counted(self) -> None:
        store = store_with(device())
        request = type(share_request())(cpu_milli=1500, host_memory_mib=300)
        store.set_pod(ObservedPod(identity("web"), node="n1", request=request))
        fleet = store.snapshot()
        assert (fleet.cpu_booked_milli[0], fleet.host_booked_mib[0]) == (1500, 300)
        store.release("uid-web")
        assert store.snapshot().cpu_booked_milli[0] == 0


class TestReports:
    def test_an_older_report_of_the_same_run_is_ignored(self) -> None:
        store = store_with(device())
        store.apply_report(report("n1", device(foreign_mib=5000), sequence=10**9), NOW)
        assert store.apply_report(report("n1", device(), sequence=10**9 - 1), NOW) is None
        assert store.snapshot().foreign_mib[0, 0] == 5000

    def test_a_report_of_a_run_before_the_present_one_is_ignored(self) -> None:
        store = store_with(device())
        store.apply_report(report("n1", device(), agent_run="run-2", sequence=1), NOW)
        assert store.apply_report(report("n1", device(foreign_mib=1), agent_run="run-1", sequence=10**9), NOW) is None

    def test_a_report_for_a_node_that_is_not_listed_is_refused_once_the_list_is_in(self) -> None:
        store = store_with(device())
        store.apply_report(report("early", device()), NOW)
        store.nodes_listed()
        assert store.node("early") is None
        with pytest.raises(UnknownNode, match="'late'"):
            store.apply_report(report("late", device()), NOW)

    def test_the_answer_carries_bookings_only_when_they_changed(self) -> None:
        store = store_with(device())
        answer = store.apply_report(report("n1", device()), NOW)
        assert answer is not None
        reserve(store)
        changed = store.apply_report(report("n1", device(), bookings_generation=answer.bookings_generation), NOW)
        assert changed is not None
        assert changed.bookings is not None
        assert [(entry.pod_uid, entry.memory_mib) for entry in changed.bookings] == [("uid-p", 8192)]
        same = store.apply_report(report("n1", device(), bookings_generation=changed.bookings_generation), NOW)
        assert same is not None
        assert same.bookings is None

    def test_a_node_is_stale_45_seconds_after_its_last_report_and_comes_back_with_the_next(self) -> None:
        store = store_with(device())
        assert store.expire(NOW + 45) == ()
        assert store.expire(NOW + 45.1) == ("n1",)
        assert state_of(store) is FleetState.STALE
        store.apply_report(report("n1", device()), NOW + 60)
        assert state_of(store) is FleetState.FRESH

    def test_running_pods_keep_their_share_on_a_stale_node(self) -> None:
        store = store_with(device())
        reserve(store)
        store.expire(NOW + 100)
        assert booked(store) == (8192, 100, 1)

    def test_a_device_that_vanishes_keeps_its_bookings_and_gets_them_back(self) -> None:
        store = store_with(*devices(2))
        store.set_pod(bound("a", uuid="GPU-1"))
        store.apply_report(report("n1", device("GPU-0")), NOW)
        fleet = store.snapshot()
        assert fleet.uuids[0] == ("GPU-0", "GPU-1")
        assert fleet.device_state[1, 0] == DeviceState.OUT
        assert store.totals("n1") == {"gpu": 200, "gpu-memory": 2 * A100_MIB, "gpu-compute": 200}
        store.apply_report(report("n1", *devices(2)), NOW)
        assert store.snapshot().device_state[1, 0] == DeviceState.HEALTHY
        assert booked(store, 1) == (8192, 100, 1)

    def test_a_vanished_device_goes_with_its_last_share(self) -> None:
        store = store_with(*devices(2))
        store.set_pod(bound("a", uuid="GPU-1"))
        store.apply_report(report("n1", device("GPU-0")), NOW)
        store.release("uid-a")
        assert store.snapshot().uuids[0] == ("GPU-0",)

    def test_a_driver_in_trouble_takes_every_device_out_and_none_away(self) -> None:
        store = store_with(*devices(2))
        store.apply_report(report("n1", state=NodeState.NO_DRIVER), NOW)
        fleet = store.snapshot()
        assert fleet.device_state[:2, 0].tolist() == [DeviceState.OUT, DeviceState.OUT]
        assert store.totals("n1") == {"gpu": 200, "gpu-memory": 2 * A100_MIB, "gpu-compute": 200}

    def test_an_agent_that_reports_old_news_makes_its_node_stale(self) -> None:
        store = store_with(device())
        store.apply_report(report("n1", device(), state=NodeState.STALE), NOW)
        assert state_of(store) is FleetState.STALE

    @pytest.mark.parametrize(
        ("values", "state"),
        [
            pytest.param({"health": Health.SUSPECT}, DeviceState.SUSPECT, id="suspect"),
            pytest.param({"health": Health.PROBATION}, DeviceState.OUT, id="probation"),
            pytest.param({"health": Health.LOST}, DeviceState.OUT, id="lost"),
            pytest.param({"health": Health.CORDONED}, DeviceState.OUT, id="cordoned"),
            pytest.param({"owner": Owner.CONTRADICTION}, DeviceState.OUT, id="two owners"),
            pytest.param({"mode_ready": False}, DeviceState.OUT, id="mode not ready"),
            pytest.param({"total_mib": 0}, DeviceState.OUT, id="no memory"),
        ],
    )
    def test_what_a_report_says_of_a_device_decides_whether_it_takes_pods(
        self, values: dict[str, object], state: DeviceState
    ) -> None:
        assert store_with(device(**values)).snapshot().device_state[0, 0] == state

    def test_a_split_gpu_offers_its_instances_only(self) -> None:
        store = store_with(device("GPU-0", mig_enabled=True), device("GPU-1"))
        assert store.snapshot().uuids[0] == ("GPU-1",)

    def test_load_is_an_average_over_time(self) -> None:
        store = store_with(device(utilisation=0.0))
        store.apply_report(report("n1", device(utilisation=1.0)), NOW + 30)
        # One time constant later the average has gone 1 - 1/e of the way.
        assert store.snapshot().load[0, 0] == pytest.approx(0.632, abs=0.001)

    def test_load_of_a_stale_node_is_unknown(self) -> None:
        store = store_with(device(utilisation=0.5))
        store.expire(NOW + 100)
        assert np.isnan(store.snapshot().load[0, 0])

    def test_kinds_of_device_that_exist_at_one_time_are_bounded(self) -> None:
        store = ClusterStore(store_with(device())._settings)
        for number in range(6):
            store.set_node(node_facts(f"n{number}"))
        held = [tuple(device(f"GPU-{n}-{k}", total_mib=1000 + 100 * n + k) for k in range(100)) for n in range(6)]
        for number in range(5):
            store.apply_report(report(f"n{number}", *held[number]), NOW)
        with pytest.raises(InvalidReport, match="kinds"):
            store.apply_report(report("n5", *held[5]), NOW)

    def test_kinds_that_no_device_has_any_more_make_room(self) -> None:
        store = ClusterStore(store_with(device())._settings)
        store.set_node(node_facts())
        for start in range(0, 4000, 100):
            held = tuple(device(f"GPU-{k}", total_mib=1000 + start + k) for k in range(100))
            store.apply_report(report("n1", *held), NOW)
        assert len(store.snapshot().kinds) <= 512


class TestNominated:
    def test_a_nominated_pod_keeps_its_place_from_lower_priorities(self) -> None:
        store = store_with(device())
        store.set_pod(ObservedPod(identity("vip", priority=10), nominated="n1", request=whole_request()))
        refused = store.assume(placing(share_request(), "small", priority=5), NOW)
        assert isinstance(refused, Verdict)
        assert isinstance(store.assume(placing(share_request(), "higher", priority=11), NOW), Reservation)

    def test_the_nominated_pod_itself_sees_its_place_as_free(self) -> None:
        store = store_with(device())
        store.set_pod(ObservedPod(identity("vip", priority=10), nominated="n1", request=whole_request()))
        assert isinstance(store.assume(placing(whole_request(), "vip", priority=10), NOW), Reservation)

    def test_room_that_a_terminating_victim_frees_early_is_kept(self) -> None:
        store = store_with(device())
        store.set_pod(bound("victim-1", memory_mib=40_000, compute_milli=400))
        store.set_pod(bound("victim-2", memory_mib=40_000, compute_milli=400, is_terminating=True))
        store.set_pod(bound("victim-1", memory_mib=40_000, compute_milli=400, is_terminating=True))
        store.set_pod(ObservedPod(identity("vip", priority=10), nominated="n1", request=whole_request()))
        store.release("uid-victim-1")
        assert isinstance(store.assume(placing(share_request(), "thief"), NOW), Verdict)

    def test_a_promise_ends_when_the_pod_is_bound(self) -> None:
        store = store_with(*devices(2))
        store.set_pod(ObservedPod(identity("vip", priority=10), nominated="n1", request=whole_request()))
        store.set_pod(bound("vip", memory_mib=A100_MIB, compute_milli=1000, pod=identity("vip", priority=10)))
        assert len(store.nominees) == 0


class TestNodes:
    def test_a_removed_node_takes_nothing_and_its_pods_books_come_back_with_it(self) -> None:
        store = store_with(device())
        store.set_pod(bound("a"))
        store.remove_node("n1")
        assert "n1" not in store.snapshot().rows
        store.set_node(node_facts())
        store.apply_report(report("n1", device()), NOW)
        assert booked(store) == (8192, 100, 1)

    def test_a_node_known_to_have_devices_is_waited_for(self) -> None:
        store = ClusterStore(store_with(device())._settings)
        store.set_node(node_facts(totals=(("gpu", 100),)))
        store.set_node(node_facts("plain"))
        assert store.unreported == {"n1"}
        assert state_of(store) is FleetState.UNREPORTED
        assert state_of(store, "plain") is FleetState.WITHOUT_DEVICES
        store.apply_report(report("n1", device()), NOW)
        assert store.unreported == frozenset()

    def test_an_overbooked_device_is_named_with_its_pods(self) -> None:
        store = store_with(device())
        store.set_pod(bound("a", memory_mib=60_000))
        store.set_pod(bound("b", memory_mib=60_000))
        assert store.overbooked() == {("n1", "GPU-0"): (identity("a"), identity("b"))}
        assert isinstance(store.assume(placing(share_request(1)), NOW), Verdict)


def test_a_verb_called_from_another_thread_is_refused() -> None:
    store = store_with(device())
    failures: list[BaseException] = []

    def call() -> None:
        try:
            store.release("x")
        except AssertionError as error:
            failures.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert len(failures) == 1


def test_a_holding_remembers_when_it_was_placed() -> None:
    store = store_with(device())
    reservation = reserve(store, now=NOW + 5)
    store.confirm(reservation.token)
    holding = store.ledger.get("uid-p")
    assert isinstance(holding, Holding)
    assert holding.since == NOW + 5
