"""What GPU types cost for the pods placed: readings of a run, worked out by hand."""

from __future__ import annotations

import pytest

from benchmarks.quality import runs
from benchmarks.quality.data import folder
from benchmarks.quality.ledger import Ledger
from benchmarks.quality.product import kind_of
from benchmarks.quality.runs import Run, run
from benchmarks.quality.trace import TraceNode, TracePod
from benchmarks.quality.types import Watch, median_cost, sought

NODES = [
    TraceNode("t4", 96_000, 262_144, 4, "T4"),
    TraceNode("v100", 96_000, 262_144, 4, "V100M16"),
    TraceNode("p100", 96_000, 262_144, 2, "P100"),
]
"""Costs 1.0, 1.78 and 0.89: the median of ten GPUs is a T4, so four of T4 and four of V100 are dear."""

HALF = TracePod(1_000, 1_024, 1, 500, ())
TWO = TracePod(1_000, 1_024, 2, 1000, ())
ONLY_P100 = TracePod(1_000, 1_024, 1, 500, ("P100",))
PODS = [HALF, TWO, ONLY_P100]


def test_the_median_gpu_counts_every_gpu_once():
    assert median_cost(NODES) == kind_of("T4").cost == 1.0


@pytest.mark.parametrize(
    ("pods", "models"),
    [
        pytest.param([HALF], set(), id="nobody names any"),
        pytest.param([ONLY_P100], {"P100"}, id="one is named"),
        # T4 and V100 get 4/8 of 2,000 each and P100 500: of 2,500 parts 0.4, 0.4, 0.2, as of the ten GPUs.
        pytest.param([TracePod(1, 1, 2, 1000, ("T4", "V100M16")), ONLY_P100], set(), id="as many as there are"),
        # As before with 1,000 more for P100: parts 0.29, 0.29 and 0.43.
        pytest.param(
            [TracePod(1, 1, 2, 1000, ("T4", "V100M16"))] + [ONLY_P100] * 3, {"P100"}, id="more than there are"
        ),
        pytest.param([TracePod(1, 1, 1, 500, ("P100", "P100", "A10"))], {"P100"}, id="twice, and one not there"),
    ],
)
def test_sought_are_models_named_beyond_their_part(pods, models):
    assert sought(NODES, pods) == models


def test_a_reading_counts_whole_devices_and_unchoosy_demand():
    ledger, watch = Ledger(NODES), Watch(NODES, PODS)
    for pod, decision in (
        (TWO, (1, (0, 1))),
        (HALF, (2, (0,))),
        (ONLY_P100, (2, (0,))),
    ):
        ledger.take(pod, *decision)
        watch(pod, decision, ledger)
    # 3,000 of 10,000 arrived: 30 %. Two V100 and one P100 in use for three GPUs' worth: (2 x 1.78 + 0.89) / 3.
    reading = watch.readings[30]
    assert reading.cost_per_gpu == pytest.approx((2 * kind_of("V100M16").cost + kind_of("P100").cost) / 3)
    assert reading.dear_percent == pytest.approx(100 * 2 / 8)
    # Unchoosy: 2,000 on V100 and 500 on P100, which is the one sought.
    assert reading.sought_percent == pytest.approx(100 * 500 / 2_500)
    assert list(watch.readings) == [30]


def test_a_lost_pod_counts_as_arrived_only():
    ledger, watch = Ledger(NODES), Watch(NODES, [HALF])
    decision = (0, (0,))
    ledger.take(HALF, *decision)
    watch(HALF, decision, ledger)
    watch(TracePod(1, 1, 5, 1000, ()), None, ledger)
    # 5,500 of 10,000 arrived: both readings at once; half a T4's worth for one T4.
    assert list(watch.readings) == [30, 50]
    assert watch.readings[50].cost_per_gpu == pytest.approx(2.0)
    assert watch.readings[50].sought_percent is None


def test_watching_changes_nothing(monkeypatch):
    monkeypatch.setattr(runs, "read_nodes", lambda _: NODES * 30)
    monkeypatch.setattr(runs, "read_pods", lambda *_: PODS)
    what, watch = Run(folder(), "default", "FGD", 7), Watch(NODES * 30, PODS)
    assert run(what, watch) == run(what)
    assert list(watch.readings) == [30, 50, 70, 90]
