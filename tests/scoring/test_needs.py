from __future__ import annotations

import numpy as np
import pytest

from scoring.candidates import over_devices
from scoring.ground import survey
from scoring.needs import need_of, times_over
from scoring.outlook import Outlook
from tests.support.fleets import A100, BINPACK, T4, asks, fleet, gpu, share


@pytest.mark.parametrize(
    ("amount", "factor", "whole", "expected"),
    [
        (81_920, 1000, 81_920, 1000),
        (8_191, 1000, 81_920, 99),  # 99.99
        (8_192, 1000, 81_920, 100),
        (0, 1000, 81_920, 0),
        (5, 1000, 0, 0),
        (2**31 - 1, 1000, 1, 2**31 - 1),
        (-10, 1000, 100, -100),
    ],
)
def test_times_over_is_floored_and_bounded(amount, factor, whole, expected):
    assert times_over(np.array([amount], np.int32), factor, np.array([whole], np.int32)).tolist() == [expected]


def test_times_over_equals_integer_division_for_every_size_of_device():
    rng = np.random.default_rng(3)
    whole = rng.integers(1, 300_000, 20_000).astype(np.int32)
    amount = (rng.random(20_000) * whole).astype(np.int32)
    exact = amount.astype(object) * 1000 // whole
    assert times_over(amount, 1000, whole).tolist() == list(exact)


def test_the_scarcer_dimension_is_what_remains():
    of = fleet(a=[gpu(T4), gpu(A100), gpu(T4)])
    ground = survey(asks(share(1_638)), of, BINPACK, Outlook.empty())
    free_mib, free_milli = ground.free_mib // 2, ground.free_milli.copy()
    free_milli[1, 0], free_mib[2, 0] = 250, -5
    view = ground.candidates(0, ground.fits(0, free_mib, free_milli), free_mib, free_milli)
    assert view.rest_milli[:4, 0].tolist() == [500, 250, 0, 0]
    # 8,192 - 1,638 of 16,384 MiB are 400.02; the A100 has 250 - 19 left (1000 * 1638 / 81920 = 19.99).
    assert view.left_milli[:2, 0].tolist() == [400, 231]


def test_a_need_is_within_what_is_free_in_both_dimensions():
    of = fleet(a=[gpu(T4)] * 3)
    need = need_of(asks(share(8192, 400)), share(8192, 400), of)
    free_mib, free_milli = of.capacity_mib.copy(), of.capacity_milli.copy()
    free_mib[0, 0], free_milli[1, 0] = 8191, 399
    assert need.within(free_mib, free_milli)[:4, 0].tolist() == [False, False, True, False]


def test_sums_over_devices_do_not_depend_on_how_many_nodes_there_are():
    values = np.random.default_rng(1).random((8, 500), np.float32)
    ones = [float(over_devices(values[:, [row]])[0]) for row in range(500)]
    assert over_devices(values).tolist() == ones
