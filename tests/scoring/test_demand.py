"""What a mix wants of two kinds of device; the worked arithmetic stands beside each value."""

from __future__ import annotations

import pytest

from scoring.conditions import parse_conditions
from scoring.demand import demand_of
from scoring.workload import Mix, Shape
from tests.support.fleets import A100, T4

ONLY_T4 = parse_conditions({"tangram.dev/gpu-product": "T4"})
HALF = Shape(1, None, 500, cpu_milli=2_000)
PAIR = Shape(2, None, 1000, cpu_milli=20_000)
HOST_ONLY = Shape(cpu_milli=4_000)


def _mix(*shapes: tuple[Shape, float]) -> Mix:
    return Mix(tuple(shapes))


def test_cpu_goes_with_the_gpu_of_gpu_pods_only():
    demand = demand_of(_mix((HALF, 0.5), (PAIR, 0.25), (HOST_ONLY, 0.25)), (T4, A100))
    assert demand is not None
    # GPU: 0.5 * 500 + 0.25 * 2000 = 750; CPU: 0.5 * 2000 + 0.25 * 20000 = 6000; for 1000 of GPU: 8000.
    assert demand.cpu_per_device == pytest.approx(8_000)
    assert demand.gpu_milli_per_pod == pytest.approx(750 / 0.75)
    # Off by 2000 - 4000 and 20000 - 16000: 0.5 * 4e6 + 0.25 * 16e6 = 6e6 over 750, for 1000 of GPU.
    assert demand.cpu_variance == pytest.approx(6e6 / 750 * 1000)


def test_nothing_that_a_kind_can_serve_is_no_demand():
    assert demand_of(_mix((HOST_ONLY, 1.0)), (T4,)) is None
    assert demand_of(_mix((Shape(1, 50_000), 1.0)), (T4,)) is None


def test_pods_are_grouped_by_the_kinds_that_they_accept():
    large = Shape(1, 40_960, cpu_milli=1_000)  # half an A100, more than a T4 has
    demand = demand_of(_mix((HALF, 0.5), (Shape(1, None, 500, conditions=ONLY_T4), 0.25), (large, 0.25)), (T4, A100))
    assert demand is not None
    shares = {tuple(group.kinds[1:].tolist()): group.share for group in demand.groups}
    # Each asks 500 of a device, so the shares are those of the pods.
    assert shares == pytest.approx({(True, True): 0.5, (True, False): 0.25, (False, True): 0.25})


def test_slots_count_the_pods_that_want_so_much_or_more():
    quad = Shape(4, None, 1000, cpu_milli=40_000)
    demand = demand_of(_mix((HALF, 0.5), (PAIR, 0.3), (quad, 0.2)), (T4,))
    assert demand is not None
    # 20 cores count as 32, 40 as 48; whoever wants four with 48 wants two with 32 too.
    assert [(slot.count, slot.cpu_milli, pytest.approx(slot.share)) for slot in demand.slots] == [
        (2, 32_000, 0.5),
        (4, 48_000, 0.2),
    ]


def test_rests_are_priced_by_what_the_kind_can_serve():
    demand = demand_of(_mix((Shape(1, 8_192), 1.0)), (T4, A100))
    assert demand is not None
    # 8 GiB are half a T4 (16 GiB) and a tenth of an A100 (80 GiB); two of the three loads make them scarce.
    assert demand.worth[1, 499] == 0
    assert demand.worth[1, 500] == pytest.approx(500 * 2 / 3)
    assert demand.worth[2, 100] == pytest.approx(100 * 2 / 3)
    assert not demand.worth[0].any()
