from __future__ import annotations

import math

import pytest

from scoring.errors import InvalidPolicy
from scoring.registry import DEFAULT_POLICY, PROFILES, SCORERS, build_policies


def test_every_install_has_the_profiles_and_the_default():
    assert set(build_policies()) == set(PROFILES) == {"binpack", "spread", "latency"}
    assert DEFAULT_POLICY in PROFILES


def test_weights_sum_to_one_and_zero_weights_are_left_out():
    policy = build_policies({"mine": {"load": 3, "packing": 1, "spread": 0}})["mine"]
    assert policy.weights == (("load", 0.75), ("packing", 0.25))
    assert [(name, scorer, weight) for name, scorer, weight in policy.scorers()] == [
        ("load", SCORERS["load"], 0.75),
        ("packing", SCORERS["packing"], 0.25),
    ]


def test_a_profile_of_the_configuration_replaces_the_built_in_one():
    assert build_policies({"spread": {"load": 1}})["spread"].weights == (("load", 1.0),)


@pytest.mark.parametrize(
    ("weights", "problem"),
    [
        pytest.param(
            {"paking": 1}, r"unknown scorer 'paking' \(nearest: packing\), valid are .*fragmentation, load", id="typo"
        ),
        pytest.param({"zzz": 1}, "unknown scorer 'zzz', valid are", id="nothing near"),
        pytest.param({"load": -1}, "weight of load is -1, valid is a number of 0 or more", id="negative"),
        pytest.param({"load": math.nan}, "weight of load is nan", id="not a number"),
        pytest.param({"load": math.inf}, "weight of load is inf", id="infinite"),
        pytest.param({"load": "much"}, "weight of load is 'much'", id="text"),
        pytest.param({"load": True}, "weight of load is True", id="truth value"),
        pytest.param({"load": 0}, "no scorer has a weight above 0", id="all zero"),
        pytest.param({}, "no scorer has a weight above 0", id="empty"),
    ],
)
def test_a_policy_that_cannot_be_understood_is_refused(weights, problem):
    with pytest.raises(InvalidPolicy, match=f"policy mine: {problem}"):
        build_policies({"mine": weights})


def test_all_problems_are_told_at_once():
    with pytest.raises(InvalidPolicy) as caught:
        build_policies({"one": {"x": -1}, "two": {}})
    assert len(caught.value.problems) == 3
