"""What a placement costs the pods to come."""

from __future__ import annotations

import numpy as np
import pytest

from scoring.ground import survey
from scoring.outlook import Outlook
from scoring.policies.foresight import foresight
from scoring.workload import Mix, Shape
from tests.support.fleets import BINPACK, T4, Host, asks, fleet, gpu, node, share, whole, winner

PLAIN = Shape(1, None, 1000, cpu_milli=10_000)


def _costs(mix: Mix, request, host: Host) -> list[float]:
    """Return the cost of each device of one node, in thousandths of a device."""
    of = fleet(a=host)
    ground = survey(request, of, BINPACK, Outlook.of(mix, of.kinds))
    fits = ground.fits(0, ground.free_mib, ground.free_milli)
    value = np.broadcast_to(foresight(ground.candidates(0, fits, ground.free_mib, ground.free_milli)), of.kind.shape)
    return [float((0.5 - one) * 80_000) for one in value[: len(of.uuids[0]), 0]]


def test_nothing_known_costs_nothing():
    assert _costs(Mix(), asks(share(None, 500)), node(gpu(T4))) == [0]


def test_a_pod_like_all_others_costs_nothing_where_cpu_is_plenty():
    (cost,) = _costs(Mix(((PLAIN, 1.0),)), asks(whole(), cpu_milli=10_000), node(gpu(T4), cpu_capacity_milli=96_000))
    assert cost == pytest.approx(0, abs=20)


def test_cpu_beyond_the_share_of_a_device_costs_what_it_strands():
    # 2 devices, 20 cores; a pod of 1 device leaves 1, and 10 cores for it, or 5: half a device is stranded.
    # No pod varies, so nothing is uncertain. FGD adds 0.1 of the device that no pod can use with 5 cores: 100.
    host = node(gpu(T4), gpu(T4), cpu_capacity_milli=20_000)
    assert _costs(Mix(((PLAIN, 1.0),)), asks(whole(), cpu_milli=10_000), host)[0] == pytest.approx(0, abs=20)
    assert _costs(Mix(((PLAIN, 1.0),)), asks(whole(), cpu_milli=15_000), host)[0] == pytest.approx(600, abs=20)


def test_a_share_goes_where_the_rest_is_what_others_ask():
    # 300 on an empty device leaves 700, for which nobody asks; beside a 700 it leaves nothing.
    mix = Mix(((Shape(1, None, 700), 0.5), (Shape(1, None, 300), 0.5)))
    begun = gpu(T4, booked_milli=700, booked_mib=11_468, sharers=1)
    wasted, kept = (
        _costs(mix, asks(share(None, 200)), node(gpu(T4), begun)),
        _costs(mix, asks(share(None, 300)), node(gpu(T4), begun)),
    )
    assert kept[1] <= kept[0]
    assert wasted[1] > kept[1]


def test_a_pod_of_little_cpu_goes_where_cpu_is_short():
    mix = Mix(((PLAIN, 0.9), (Shape(1, None, 1000, cpu_milli=2_000), 0.1)))
    of = fleet(poor=node(gpu(T4), gpu(T4), cpu_capacity_milli=12_000), rich=node(gpu(T4), gpu(T4)))
    outlook = Outlook.of(mix, of.kinds).before(of)
    assert winner(asks(whole(), cpu_milli=2_000), of, outlook=outlook) == "poor"
    assert winner(asks(whole(), cpu_milli=12_000), of, outlook=outlook) == "rich"
