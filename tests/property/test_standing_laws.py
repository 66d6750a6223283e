"""What is remembered of an evaluation gives what a fresh one gives, whatever happened to the fleet in between."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scoring.outlook import Outlook
from scoring.pipeline import PlacedPod, allocation_on, evaluate
from scoring.registry import DEFAULT_POLICY
from scoring.request import ContainerAsk, PodRequest
from scoring.standing import Standing, can_stand, scores, stand, stand_again
from scoring.workload import MixHistogram
from tests.support.fleet_strategies import node_lists
from tests.support.fleets import POLICIES, T4, add_node, book, draft_of, gpu

_REQUESTS = tuple(
    PodRequest((ContainerAsk("main", count, memory, compute),), cpu_milli=4_000)
    for count, memory, compute in ((1, None, 1000), (1, 4_096, None), (2, None, 1000), (1, None, 300), (2, None, 250))
)
_EVENTS = st.lists(
    st.tuples(st.sampled_from(("place", "load", "cpu", "node", "look", "prospect")), st.integers(0, 100)), max_size=12
)


def _outlook() -> Outlook:
    histogram = MixHistogram()
    for request in (*_REQUESTS, PodRequest((), cpu_milli=8_000)):
        histogram.note(request)
    return Outlook.of(histogram.mix(), (T4,))


@settings(max_examples=60, deadline=None)
@given(nodes=node_lists(), events=_EVENTS, request_=st.sampled_from(_REQUESTS))
def test_the_remembered_equals_the_fresh(nodes, events, request_):
    assert can_stand(request_)
    draft, policy = draft_of(nodes), POLICIES[DEFAULT_POLICY]
    fleet = draft.freeze()
    outlook = _outlook().before(fleet)
    known = stand(request_, fleet, policy, outlook)
    for event, number in [*events, ("look", 0)]:
        row = draft.rows[fleet.names[number % len(fleet)]]
        match event:
            case "place":
                placed = allocation_on(_REQUESTS[number % len(_REQUESTS)], fleet, row, policy, outlook)
                if isinstance(placed, PlacedPod):
                    book(draft, fleet.names[row], placed)
            case "load":
                count = len(fleet.uuids[row])
                load = np.full(count, number / 100, np.float32)
                draft.set_load(row, "load", load)
                draft.set_load(row, "settling_milli", np.full(count, number, np.int32))
            case "cpu":
                draft.set_node(row, cpu_booked_milli=number * 100)
            case "node":
                add_node(draft, f"new-{len(fleet)}", [gpu(T4)] * (number % 7))
            case "prospect":
                outlook = outlook.before(fleet)
        fleet = draft.freeze()
        if event in ("look", "load"):
            known = stand_again(known, request_, fleet, policy, outlook, fleet.changed_since(known.generation))
            _agree(known, request_, fleet, policy, outlook)


def _agree(known: Standing, request: PodRequest, fleet, policy, outlook: Outlook) -> None:
    fresh = evaluate(request, fleet, policy, outlook)
    assert known.code.tolist() == fresh.code.tolist()
    assert known.reason.tolist() == fresh.reason.tolist()
    assert scores(known, request, fleet, policy, outlook).tolist() == fresh.score.tolist()
