"""Prices of rests, against a brute force over every basis of the linear program."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scoring import worth
from scoring.worth import rest_worth

_DEMANDS = st.dictionaries(st.sampled_from((150, 250, 330, 500, 620, 1000)), st.integers(1, 20), min_size=1, max_size=3)


def _patterns(sizes: list[int]) -> list[tuple[int, ...]]:
    counts = itertools.product(*(range(1000 // size + 1) for size in sizes))
    return [count for count in counts if 0 < sum(n * size for n, size in zip(count, sizes, strict=True)) <= 1000]


def _most_handed_out(pods: dict[int, float]) -> float:
    """Return the optimum of the program: the best feasible basis of all."""
    sizes = sorted(pods)
    patterns = np.array(_patterns(sizes), float)
    rows = len(sizes) + 1
    columns = np.vstack([np.hstack([patterns, np.ones((len(patterns), 1))]), np.eye(rows)]).T
    brings = np.append(patterns @ np.array(sizes, float), np.zeros(rows))
    amounts = np.array([*(pods[size] for size in sizes), 1.0])
    best = 0.0
    for basis in itertools.combinations(range(columns.shape[1]), rows):
        matrix = columns[:, basis]
        if abs(np.linalg.det(matrix)) > 1e-9:
            levels = np.linalg.solve(matrix, amounts)
            if (levels >= -1e-9).all():
                best = max(best, float(brings[list(basis)] @ levels))
    return best


@settings(max_examples=25, deadline=None)
@given(demand=_DEMANDS, load=st.sampled_from((0.6, 1.0, 1.3)))
def test_prices_prove_the_optimum(demand, load):
    # V(1000) for the device and s - V(s) for each size are prices that no pattern beats: what they say a device and the
    # demand are worth bounds the program from above, and by strong duality the best prices meet it.
    total = sum(demand.values())
    pods = {size: load * amount / total * 1000 / size for size, amount in demand.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worth, "LOADS", (load,))
        value = rest_worth(demand).astype(float)
    priced = value[1000] + sum(count * (size - value[size]) for size, count in pods.items())
    assert priced == pytest.approx(_most_handed_out(pods), rel=1e-3)


@settings(max_examples=50, deadline=None)
@given(demand=st.dictionaries(st.integers(1, 1000), st.floats(0.01, 100), max_size=40))
def test_a_larger_rest_is_never_worth_less_and_none_more_than_itself(demand):
    value = rest_worth(demand)
    assert value[0] == 0
    assert (np.diff(value) >= 0).all()
    assert (value <= np.arange(1001) + 0.5).all()


def test_whole_devices_only_make_every_smaller_rest_worthless():
    value = rest_worth({1000: 1.0})
    assert value[990] == 0
    # At load 1 there is a device for every pod, so none is worth anything; at 1.05 and 1.1 devices are short.
    assert value[1000] == pytest.approx(1000 * 2 / 3)


def test_a_rest_that_no_size_fills_is_worthless():
    # The commonest share of the openb trace leaves 190, for which nobody asks.
    value = rest_worth({810: 1.0})
    assert value[190] == 0
    assert value[810] == pytest.approx(810)


def test_no_demand_is_worth_nothing():
    assert not rest_worth({}).any()
    assert not rest_worth({500: 0.0}).any()
