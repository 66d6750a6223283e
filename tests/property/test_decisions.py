from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scoring.fleet import DeviceState, Fleet
from scoring.outlook import Outlook
from scoring.pipeline import PlacedPod, allocation_on, evaluate, levels, verdict
from scoring.registry import Policy
from scoring.request import PodRequest
from scoring.status import Code
from tests.support.fleet_strategies import fleets, node_lists, outlooks, policies, requests
from tests.support.fleets import draft_of


class TestOneDecision:
    """Filter, prioritize and bind are readings of one evaluation, for one node and for the whole fleet."""

    @given(st.data(), requests(), fleets(), policies())
    @settings(max_examples=150, deadline=None)
    def test_one_node_alone_is_judged_as_in_the_fleet(self, data, request: PodRequest, of: Fleet, policy: Policy):
        outlook = data.draw(outlooks(of))
        found = evaluate(request, of, policy, outlook)
        for row in range(len(of)):
            alone = evaluate(request, of.take(np.array([row])), policy, outlook)
            assert verdict(alone, 0) == verdict(found, row)
            assert alone.score[0] == found.score[row]
            if verdict(found, row).fits:
                assert [chosen[:, 0].tolist() for chosen in alone.slots] == [
                    chosen[:, row].tolist() for chosen in found.slots
                ]

    @given(st.data(), requests(), fleets(), policies())
    @settings(max_examples=150, deadline=None)
    def test_bind_takes_what_filter_found(self, data, request: PodRequest, of: Fleet, policy: Policy):
        outlook = data.draw(outlooks(of))
        found = evaluate(request, of, policy, outlook)
        for row in range(len(of)):
            placed = allocation_on(request, of, row, policy, outlook)
            if isinstance(placed, PlacedPod):
                given_slots = [
                    [of.uuids[row].index(share.uuid) for share in shares] for _, shares in placed.allocation.containers
                ]
                assert given_slots == [chosen[:, row].tolist() for chosen in found.slots]
            else:
                assert placed == verdict(found, row)

    @given(st.data(), requests(), fleets(), policies())
    @settings(max_examples=100, deadline=None)
    def test_accepted_and_refused_partition_the_nodes_and_scores_are_in_range(self, data, request, of, policy):
        found = evaluate(request, of, policy, data.draw(outlooks(of)))
        fits = np.array([verdict(found, row).fits for row in range(len(of))])
        assert ((found.score >= 0) & (found.score <= 1)).all()
        assert (found.score[~fits] == 0).all()
        for chosen in found.slots:
            assert ((chosen >= 0).all(axis=0) == fits).all()

    @given(st.data(), requests(), node_lists(), policies())
    @settings(max_examples=100, deadline=None)
    def test_order_of_nodes_does_not_matter(self, data, request, nodes, policy):
        of = draft_of(nodes).freeze()
        outlook = data.draw(outlooks(of))
        shuffled = np.array(data.draw(st.permutations(range(len(of)))))
        one, other = evaluate(request, of, policy, outlook), evaluate(request, of.take(shuffled), policy, outlook)
        assert [verdict(one, row) for row in shuffled] == [verdict(other, row) for row in range(len(of))]
        assert one.score[shuffled].tolist() == other.score.tolist()


class TestLevels:
    """kube-scheduler draws among ties, so exactly one node gets 10, and the same one whatever the order of nodes."""

    @given(
        st.lists(st.tuples(st.floats(0, 1, width=32), st.integers(0, 2**32 - 1)), min_size=1, unique_by=lambda x: x[1])
    )
    def test_exactly_one_ten_and_a_better_score_never_gets_less(self, nodes):
        score = np.array([value for value, _ in nodes], np.float32)
        order = np.array([number for _, number in nodes], np.uint32)
        given_levels = levels(score, order)
        assert (given_levels == 10).sum() == 1
        assert ((given_levels >= 0) & (given_levels <= 10)).all()
        assert score[given_levels.argmax()] == score.max()
        ranked = given_levels[np.argsort(score, kind="stable")]
        assert (np.diff(np.minimum(ranked, 9)) >= 0).all()

    @given(st.data(), st.lists(st.integers(0, 2**32 - 1), min_size=2, max_size=20, unique=True))
    def test_the_winner_does_not_depend_on_the_order_of_nodes(self, data, order):
        score = np.array(data.draw(st.lists(st.sampled_from((0.25, 0.5)), min_size=len(order), max_size=len(order))))
        numbers = np.array(order, np.uint32)
        shuffled = np.array(data.draw(st.permutations(range(len(order)))))
        winner = numbers[levels(score, numbers).argmax()]
        assert numbers[shuffled][levels(score[shuffled], numbers[shuffled]).argmax()] == winner


class TestSafety:
    """Something bad never happens: nothing is given twice, and what is taken can only make room smaller."""

    @given(st.data(), requests(), node_lists(), policies())
    @settings(max_examples=150, deadline=None)
    def test_an_allocation_more_never_turns_a_refusal_into_an_acceptance(self, data, request, nodes, policy):
        draft = draft_of(nodes)
        before = evaluate(request, draft.freeze(), policy, Outlook.empty())
        other = data.draw(requests())
        for row in range(len(nodes)):
            placed = allocation_on(other, draft.freeze(), row, policy, Outlook.empty())
            if isinstance(placed, PlacedPod):
                for slot, mib, milli in placed.booked:
                    draft.book(row, slot, mib, milli, 1)
        after = evaluate(request, draft.freeze(), policy, Outlook.empty())
        assert not ((before.code < Code.FIT) & (after.code == Code.FIT)).any()

    @given(st.data(), node_lists(), policies())
    @settings(max_examples=60, deadline=None)
    def test_no_device_is_ever_given_more_than_it_has(self, data, nodes, policy):
        draft = draft_of(nodes)
        for _ in range(data.draw(st.integers(1, 8))):
            of, request = draft.freeze(), data.draw(requests())
            row = data.draw(st.integers(0, len(of) - 1))
            placed = allocation_on(request, of, row, policy, Outlook.empty())
            if isinstance(placed, PlacedPod):
                assert all(of.device_state[slot, row] >= DeviceState.SUSPECT for slot, _, _ in placed.booked)
                for slot, mib, milli in placed.booked:
                    draft.book(row, slot, mib, milli, 1)
        of, start = draft.freeze(), draft_of(nodes).freeze()
        grown = (of.booked_mib > start.booked_mib) | (of.booked_milli > start.booked_milli)
        over = (of.booked_mib + of.foreign_mib > of.capacity_mib) | (of.booked_milli > of.capacity_milli)
        assert not (grown & over).any()
