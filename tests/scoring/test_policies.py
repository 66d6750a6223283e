"""Scorers, one device or node at a time; the worked arithmetic stands beside each value."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scoring.ground import survey
from scoring.outlook import Outlook
from scoring.policies.fragmentation import fragmentation
from scoring.policies.load import load
from scoring.policies.packing import packing
from scoring.policies.preference import preference
from scoring.policies.spread import spread
from scoring.policies.sufficiency import CHEAPEST, DEAREST, sufficiency
from scoring.policies.topology import topology
from scoring.registry import SCORERS
from scoring.request import PodRequest, SharingMode
from scoring.workload import Mix, Shape
from tests.support.fleets import (
    A100,
    BINPACK,
    H200,
    L4,
    MIG_10GB,
    MIG_20GB,
    T4,
    Host,
    asks,
    fleet,
    gpu,
    node,
    share,
    whole,
)


def _values(scorer, request: PodRequest, host: Host | list, outlook: Outlook | None = None) -> list[float]:
    """Return what a scorer says of each device of one node."""
    of = fleet(a=host)
    ground = survey(request, of, BINPACK, outlook or Outlook.empty())
    fits = ground.fits(0, ground.free_mib, ground.free_milli)
    values = np.broadcast_to(scorer(ground.candidates(0, fits, ground.free_mib, ground.free_milli)), of.kind.shape)
    return [float(value) for value in values[: len(of.uuids[0]), 0]]


@pytest.mark.parametrize(
    ("request_", "devices", "expected"),
    [
        # 4,096 of 16,384 MiB: the device is a quarter full, and so is its node.
        pytest.param(asks(share(4_096)), [gpu(T4)], [0.25], id="empty device"),
        # Device 0: 1 - 250/1000 = 0.75; device 1: 0.25. Node: 1 - (1500 - 250)/2000 = 0.375.
        pytest.param(
            asks(share(4_096)),
            [gpu(T4, booked_mib=8_192, booked_milli=500), gpu(T4)],
            [(0.75 + 0.375) / 2, (0.25 + 0.375) / 2],
            id="fuller device first",
        ),
        # Compute is the scarcer dimension: 1000 - 800 - 100 = 100 left. Node: the same device.
        pytest.param(asks(share(1_638, 100)), [gpu(T4, booked_milli=800)], [0.9], id="scarcer dimension"),
        # Two whole devices of four, one in use, which cannot be taken: device full; node 1 - (3000 - 2000)/4000 = 0.75.
        pytest.param(
            asks(whole(2)),
            [gpu(T4, free_mib=0, booked_milli=1000)] + [gpu(T4)] * 3,
            [0.625, *[0.875] * 3],
            id="whole devices",
        ),
        # Half of the memory is foreign: the device counts as empty all the same.
        pytest.param(asks(share(4_096)), [gpu(T4, foreign_mib=8_192)], [0.25], id="foreign memory is no packing"),
    ],
)
def test_packing_prefers_the_fuller(request_, devices, expected):
    assert _values(packing, request_, devices) == pytest.approx(expected, abs=1e-3)
    assert _values(spread, request_, devices) == pytest.approx([1 - value for value in expected], abs=1e-3)


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        pytest.param(gpu(load=0.0), 1.0, id="idle"),
        pytest.param(gpu(load=1.0), 0.25, id="busy"),  # 1 - 0.75
        pytest.param(gpu(load=0.4), 0.7, id="in between"),  # 1 - 0.75 * 0.4
        pytest.param(gpu(load=math.nan), 0.625, id="unknown"),  # 1 - 0.75 * 0.5
        pytest.param(gpu(load=0.4, settling_milli=200), 0.55, id="pods that do not show yet"),  # 1 - 0.75 * 0.6
        pytest.param(gpu(load=0.9, settling_milli=900), 0.25, id="no busier than busy"),
        pytest.param(gpu(load=0.0, foreign_mib=8_192), 0.875, id="half of it foreign"),  # 1 - 0.25 * 0.5
        pytest.param(gpu(load=1.0, foreign_mib=16_384), 0.0, id="busy and all foreign"),
    ],
)
def test_load_prefers_the_idle(device, expected):
    assert _values(load, asks(share(1)), [device]) == pytest.approx([expected])


def test_sufficiency_prefers_the_cheaper_on_a_logarithmic_scale():
    t4, l4, a100, h200 = _values(sufficiency, asks(share(1)), [gpu(T4), gpu(L4), gpu(A100), gpu(H200)])
    # Cost of a T4 is 1: 1 - ln(1 / 0.05) / ln(64 / 0.05)
    assert t4 == pytest.approx(1 - math.log(1 / CHEAPEST) / math.log(DEAREST / CHEAPEST), abs=1e-3)
    assert 1 > t4 > l4 > a100 > h200 > 0


def test_sufficiency_prefers_the_smaller_instance():
    small, large = _values(
        sufficiency, asks(share(1), sharing=frozenset({SharingMode.MIG})), [gpu(MIG_10GB), gpu(MIG_20GB)]
    )
    assert small > large


@pytest.mark.parametrize(
    ("preferences", "expected"),
    [
        pytest.param((), [1, 1, 1], id="nothing preferred"),
        pytest.param((("l4", 3.0), ("t4", 1.0)), [1 / 3, 1, 0], id="as parts of the greatest weight"),
        pytest.param((("ampere", 2.0),), [0, 0, 1], id="an architecture"),
    ],
)
def test_preference_is_the_authors_weight(preferences, expected):
    request = asks(share(1), preferences=preferences)
    assert _values(preference, request, [gpu(T4), gpu(L4), gpu(A100)]) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("count", "devices", "expected"),
    [
        pytest.param(1, [gpu(), gpu(numa=0)], [1, 1], id="one device is close to itself"),
        pytest.param(2, [gpu(link=0, numa=0), gpu(link=0, numa=1), gpu()], [1, 1, 0], id="NVLink"),
        pytest.param(2, [gpu(numa=0), gpu(numa=0), gpu(numa=1)], [0.5, 0.5, 0], id="NUMA node"),
        pytest.param(2, [gpu(numa=0), gpu(numa=0, free_mib=0)], [0, 0], id="the other one is full"),
        pytest.param(2, [gpu(numa=0), gpu(numa=0, device_state=1)], [0, 0], id="the other one is out"),
    ],
)
def test_topology_prefers_groups_that_hold_the_whole_ask(count, devices, expected):
    assert _values(topology, asks(share(1_024, count=count)), devices) == expected


def _squeezed(gain: float) -> float:
    return 1 / (1 + math.exp(-gain / 1000))


class TestFragmentation:
    def test_without_knowledge_it_is_neutral(self):
        assert _values(fragmentation, asks(share(1_024)), [gpu()]) == [0.5]

    def test_a_rest_that_nobody_can_use_is_a_loss(self):
        # Half of the pods ask 500, half 1000. Before: device 0 has 600 (useless for whole: 300), device 1 nothing lost.
        # On device 0: 300 left, of no use to anyone: 300. Gain 300 - 300 = 0.
        # On device 1: 700 left, useless for whole: 350, and device 0 as before. Gain 300 - 650 = -350.
        outlook = Outlook.of(Mix(((Shape(1, None, 500), 0.5), (Shape(1, None, 1000), 0.5))), (T4,))
        half_used = gpu(T4, capacity_mib=16_000, booked_mib=6_400, booked_milli=400)
        values = _values(fragmentation, asks(share(None, 300)), [half_used, gpu(T4, capacity_mib=16_000)], outlook)
        assert values == pytest.approx([_squeezed(0), _squeezed(-350)], abs=1e-4)

    def test_breaking_the_last_pair_of_untouched_devices_is_a_loss(self):
        # All ask two whole devices. Two untouched, one half used: 500 lost. On an untouched one of the two: the other,
        # 1000, is lost as well as its own 700; on the half used one 300 are given and 200 stay lost.
        outlook = Outlook.of(Mix(((Shape(2, None, 1000), 1.0),)), (T4,))
        devices = [gpu(T4, capacity_mib=16_000), gpu(T4, capacity_mib=16_000)]
        half_used = gpu(T4, capacity_mib=16_000, booked_mib=8_000, booked_milli=500)
        values = _values(fragmentation, asks(share(None, 300)), [*devices, half_used], outlook)
        assert values == pytest.approx([_squeezed(500 - 2200), _squeezed(500 - 2200), _squeezed(500 - 200)], abs=1e-4)

    def test_cpu_that_the_pods_to_come_need_is_a_loss(self):
        # Pods ask 4 cores; the node has 6 and would have 2: its 1000 become useless but for the 500 that are taken.
        outlook = Outlook.of(Mix(((Shape(1, None, 500, cpu_milli=4_000), 1.0),)), (T4,))
        host = node(gpu(T4), cpu_capacity_milli=6_000)
        values = _values(fragmentation, asks(share(None, 500), cpu_milli=4_000), host, outlook)
        assert values == pytest.approx([_squeezed(0 - 500)], abs=1e-4)


@pytest.mark.parametrize("scorer", SCORERS.values(), ids=SCORERS)
def test_a_broken_device_spoils_nobodys_value(scorer):
    outlook = Outlook.of(Mix(((Shape(1, None, 500), 1.0),)), (T4,))
    broken = gpu(capacity_mib=0, capacity_milli=0, load=math.nan)
    values = _values(scorer, asks(share(1_024)), [broken, gpu()], outlook)
    assert all(0 <= value <= 1 for value in values)
