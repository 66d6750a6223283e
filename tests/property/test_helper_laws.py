"""The helper in C gives what numpy gives, to the last bit: any fleet, any request, any policy, any history."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scoring.fleet import Fleet
from scoring.native import Native
from scoring.outlook import Outlook
from scoring.pipeline import allocation_on, evaluate, levels_of_rows
from scoring.policies.load import load_value
from scoring.registry import Policy
from scoring.request import PodRequest
from scoring.standing import can_stand, scores, stand, stand_again
from tests.support.fleet_strategies import fleets, outlooks, policies, requests

_NATIVE = Native.load()

pytestmark = pytest.mark.skipif(_NATIVE is None, reason="no helper was built: there is no C compiler here")


def _both(policy: Policy) -> tuple[Policy, Policy]:
    return policy, replace(policy, helper=_NATIVE)


def _ask(data: st.DataObject, fleet: Fleet) -> tuple[PodRequest, Policy, Outlook]:
    request = data.draw(requests(most_containers=1))
    outlook = data.draw(outlooks(fleet))
    return request, data.draw(policies()), outlook.before(fleet) if data.draw(st.booleans()) else outlook


@settings(max_examples=300, deadline=None)
@given(fleet=fleets(), data=st.data())
def test_a_helped_evaluation_equals_a_plain_one(fleet, data):
    request, policy, outlook = _ask(data, fleet)
    plain, helped = (evaluate(request, fleet, each, outlook) for each in _both(policy))
    assert helped.code.tolist() == plain.code.tolist()
    assert helped.reason.tolist() == plain.reason.tolist()
    assert helped.score.tobytes() == plain.score.tobytes()
    assert [slots.tolist() for slots in helped.slots] == [slots.tolist() for slots in plain.slots]
    for row in range(len(fleet)):
        both = [allocation_on(request, fleet, row, each, outlook) for each in _both(policy)]
        assert both[0] == both[1]


@settings(max_examples=200, deadline=None)
@given(fleet=fleets(), data=st.data())
def test_scores_by_the_helper_equal_those_by_numpy(fleet, data):
    request, policy, outlook = _ask(data, fleet)
    if not can_stand(request):
        return
    plain, helped = _both(policy)
    standing = stand(request, fleet, helped, outlook)
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, len(fleet) - 1)))), np.intp)
    again = stand_again(standing, request, fleet, helped, outlook, rows)
    expected = scores(stand(request, fleet, plain, outlook), request, fleet, plain, outlook)
    for each in (standing, again):
        assert scores(each, request, fleet, helped, outlook).tobytes() == expected.tobytes()


@settings(max_examples=200, deadline=None)
@given(fleet=fleets(), data=st.data())
def test_load_by_the_helper_equals_load_by_numpy(fleet, data):
    assert _NATIVE is not None
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, len(fleet) - 1)))), np.intp)
    expected, written = load_value(fleet), np.full(fleet.load.shape, 7, np.float32)
    _NATIVE.write_load(fleet, rows, written)
    assert written[:, rows].tobytes() == expected[:, rows].tobytes()
    others = np.setdiff1d(np.arange(len(fleet)), rows)
    assert (written[:, others] == 7).all()


few_scores = st.sampled_from([0.0, 0.25, 0.5, 1.0]) | st.floats(0, 1, width=32)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(few_scores, st.integers(0, 5)), max_size=40), st.data())
def test_levels_by_the_helper_equal_levels_by_numpy(nodes, data):
    score = np.array([each for each, _ in nodes], np.float32)
    order = np.array([each for _, each in nodes], np.uint32)
    rows = np.array(data.draw(st.permutations(range(len(nodes))))[: data.draw(st.integers(0, len(nodes)))], np.intp)
    plain, helped = (levels_of_rows(score, order, rows, each) for each in (None, _NATIVE))
    assert helped.tolist() == plain.tolist()
