"""What is scarce in a fleet: odds for kinds and for slots."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scoring.conditions import parse_conditions
from scoring.outlook import Outlook
from scoring.prospect import DEMAND_SPREAD, Prospect
from scoring.workload import Mix, Shape
from tests.support.fleets import A100, H200, L4, T4, fleet, gpu, node

KINDS = (T4, L4, A100, H200)
NAMES = ("T4", "L4", "A100-SXM4-80GB", "H200")


def _only(*names: str) -> Shape:
    return Shape(1, None, 1000, conditions=parse_conditions({"tangram.dev/gpu-product": ",".join(names)}))


def _prospect(mix: Mix, **nodes) -> Prospect:
    of = fleet(**nodes)
    found = Outlook.of(mix, of.kinds).before(of).prospect
    assert found is not None
    return found


def _chance(density: float) -> float:
    return 0.5 * (1 + math.erf((density - 1) / DEMAND_SPREAD / math.sqrt(2)))


def test_kinds_are_not_scarce_when_every_pod_takes_any():
    found = _prospect(Mix(((Shape(1, None, 1000), 1.0),)), a=[gpu(T4)], b=[gpu(A100)])
    assert found.short == pytest.approx(_chance(0), abs=1e-6)


def test_a_kind_is_as_scarce_as_choosy_demand_for_it_over_what_is_free():
    mix = Mix(((Shape(1, None, 1000), 0.5), (_only("T4"), 0.5)))
    found = _prospect(mix, a=[gpu(T4)], b=[gpu(A100)] * 2)
    # 3 devices are free; half of the demand must go to the only T4: 1.5 to 1.
    assert found.short[1:] == pytest.approx([_chance(1.5), _chance(0)], abs=1e-6)


def test_what_cpu_does_not_reach_is_no_supply():
    mix = Mix(((Shape(1, None, 1000, cpu_milli=8_000), 0.5), (_only("T4"), 0.5)))
    plenty = _prospect(mix, a=node(gpu(T4), gpu(T4)), b=[gpu(A100)])
    tight = _prospect(
        Mix(tuple((Shape(1, None, 1000, 8_000, shape.conditions), weight) for shape, weight in mix.shapes)),
        a=node(gpu(T4), gpu(T4), cpu_capacity_milli=8_000),
        b=[gpu(A100)],
    )
    assert tight.short[1] > plenty.short[1]


def test_slots_run_short_when_whole_nodes_do():
    mix = Mix(((Shape(1, None, 500), 0.5), (Shape(4, None, 1000), 0.5)))
    broken = [gpu(T4, booked_milli=100, booked_mib=1_600), gpu(T4), gpu(T4), gpu(T4)]
    ((shape, odds),) = _prospect(mix, a=broken, b=broken).slots
    assert shape.count == 4
    # No slot is left, 0.9 of 1 whole pod is expected.
    assert odds > 0.97


@settings(max_examples=60, deadline=None)
@given(
    devices=st.lists(st.integers(1, 4), min_size=4, max_size=4),
    groups=st.lists(
        st.tuples(st.sets(st.integers(0, 3), min_size=1, max_size=3), st.integers(1, 9)), min_size=1, max_size=5
    ),
)
def test_the_scarcest_kinds_are_the_densest_set_of_all(devices, groups):
    total = sum(weight for _, weight in groups)
    shapes: dict[frozenset[int], float] = {}
    for kinds, weight in groups:
        shapes[frozenset(kinds)] = shapes.get(frozenset(kinds), 0) + weight / total
    mix = Mix(tuple((_only(*(NAMES[kind] for kind in sorted(kinds))), share) for kinds, share in shapes.items()))
    nodes = {f"n{at}": [gpu(KINDS[at])] * count for at, count in enumerate(devices)}
    densest = max(
        sum(share for kinds, share in shapes.items() if kinds <= set(chosen))
        * sum(devices)
        / sum(devices[kind] for kind in chosen)
        for size in range(1, 5)
        for chosen in itertools.combinations(range(4), size)
    )
    short = _prospect(mix, **nodes).short
    assert float(np.max(short)) == pytest.approx(_chance(densest), abs=1e-5)
