"""Who may go anywhere leaves scarce kinds and whole slots to those who may not."""

from __future__ import annotations

import pytest

from scoring.conditions import parse_conditions
from scoring.outlook import Outlook
from scoring.workload import Mix, Shape
from tests.support.fleets import A100, T4, asks, fleet, gpu, node, whole, winner

ONLY_T4 = parse_conditions({"tangram.dev/gpu-product": "T4"})
ANY = Shape(1, None, 1000, cpu_milli=8_000)
CHOOSY = Shape(1, None, 1000, cpu_milli=8_000, conditions=ONLY_T4)
BIG = Shape(8, None, 1000, cpu_milli=64_000)


def _goes_to(mix: Mix, request, **nodes) -> str | None:
    of = fleet(**nodes)
    return winner(request, of, outlook=Outlook.of(mix, of.kinds).before(of))


@pytest.mark.parametrize(("choosy", "node_"), [(0.6, "dear"), (0.02, "cheap")])
def test_a_pod_of_any_kind_takes_the_one_that_nobody_else_needs(choosy, node_):
    mix = Mix(((ANY, 1 - choosy), (CHOOSY, choosy)))
    nodes = {"cheap": [gpu(T4)] * 2, "dear": [gpu(A100)] * 2}
    # Otherwise the cheaper card comes first, so it is scarcity that sends it to the dear one.
    assert _goes_to(mix, asks(whole(), cpu_milli=8_000), **nodes) == node_


def test_a_choosy_pod_goes_to_its_kind_however_scarce():
    mix = Mix(((ANY, 0.4), (CHOOSY, 0.6)))
    request = asks(whole(), cpu_milli=8_000, conditions=ONLY_T4)
    assert _goes_to(mix, request, cheap=[gpu(T4)] * 2, dear=[gpu(A100)] * 2) == "cheap"


def test_a_whole_node_is_left_to_the_pod_that_needs_all_of_it():
    mix = Mix(((ANY, 0.7), (BIG, 0.3)))
    used = gpu(A100, booked_milli=1000, booked_mib=A100.total_mib, sharers=1)
    nodes = {
        "idle": node(*[gpu(A100)] * 8),
        "begun": node(*[used] * 6, gpu(A100), gpu(A100), cpu_capacity_milli=24_000),
    }
    assert _goes_to(mix, asks(whole(), cpu_milli=8_000), **nodes) == "begun"
