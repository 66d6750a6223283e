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
from scoring.pipeline import allocation_on, evaluate
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
