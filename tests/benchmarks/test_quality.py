"""The placement benchmark itself: it must refuse what breaks a limit, and see what the product gets wrong."""

from __future__ import annotations

import random

import pytest

from benchmarks.quality import runs
from benchmarks.quality.baselines import Fgd, Ties, best_fit
from benchmarks.quality.churn import churn
from benchmarks.quality.data import folder
from benchmarks.quality.ledger import BrokenDecision, Ledger
from benchmarks.quality.product import Product, mix_of, request_of
from benchmarks.quality.runs import Decider, Run, run
from benchmarks.quality.trace import TraceNode, TracePod, arrivals

NODES = [
    TraceNode("t4", 16_000, 65_536, 2, "T4"),
    TraceNode("g2", 96_000, 262_144, 8, "G2"),
    TraceNode("v100", 32_000, 131_072, 4, "V100M16"),
]
HALF = TracePod(4_000, 1_024, 1, 500, ())
WHOLE = TracePod(8_000, 1_024, 1, 1000, ())
FOUR = TracePod(32_000, 1_024, 4, 1000, ())
ONLY_T4 = TracePod(2_000, 1_024, 1, 500, ("T4",))
HOST_ONLY = TracePod(4_000, 1_024, 0, 0, ())
PODS = [HALF] * 6 + [WHOLE] * 4 + [FOUR] + [ONLY_T4] * 2 + [HOST_ONLY] * 3


class TestLedger:
    @pytest.mark.parametrize(
        ("pod", "node", "cards", "said"),
        [
            pytest.param(FOUR, 0, (0, 1, 2, 3), "cores or memory exceeded", id="cores"),
            pytest.param(TracePod(1, 70_000, 0, 0, ()), 0, (), "cores or memory exceeded", id="memory"),
            pytest.param(ONLY_T4, 1, (0,), "model not accepted", id="model"),
            pytest.param(FOUR, 1, (0, 1, 2), "4 different cards asked", id="too few cards"),
            pytest.param(FOUR, 1, (0, 1, 2, 2), "4 different cards asked", id="one card twice"),
            pytest.param(WHOLE, 1, (7,), "card exceeded", id="card in use"),
            pytest.param(HALF, 0, (5,), "card exceeded", id="card that is not there"),
        ],
    )
    def test_a_decision_that_breaks_a_limit_is_refused(self, pod, node, cards, said):
        ledger = Ledger(NODES)
        ledger.take(HALF, 1, (7,))
        before = ledger.card_left.copy(), ledger.cpu_left.copy(), ledger.allocated_milli
        with pytest.raises(BrokenDecision, match=said):
            ledger.take(pod, node, cards)
        assert (ledger.card_left == before[0]).all()
        assert (ledger.cpu_left == before[1]).all()
        assert ledger.allocated_milli == before[2]

    def test_what_is_released_is_free_again(self):
        ledger = Ledger(NODES)
        ledger.take(FOUR, 1, (0, 1, 2, 3))
        assert ledger.allocated_milli == 4_000
        ledger.release(FOUR, 1, (0, 1, 2, 3))
        fresh = Ledger(NODES)
        assert (ledger.card_left == fresh.card_left).all()
        assert (ledger.cpu_left == fresh.cpu_left).all()
        assert ledger.allocated_milli == 0


@pytest.fixture
def small(monkeypatch):
    """The benchmark on ninety nodes, so that no pod is more than one per cent of them."""
    monkeypatch.setattr(runs, "read_nodes", lambda _: NODES * 30)
    monkeypatch.setattr("benchmarks.quality.churn.read_nodes", lambda _: NODES * 8)
    for module in ("runs", "churn"):
        monkeypatch.setattr(f"benchmarks.quality.{module}.read_pods", lambda *_: PODS)
    return Run(folder(), "default", "binpack", 7)


def test_a_pod_refused_that_would_have_fitted_fails_the_run(small, monkeypatch):
    monkeypatch.setattr(runs, "decider", lambda *_: Decider(lambda _pod: None, lambda *_: None))
    with pytest.raises(BrokenDecision, match="was refused and would have fitted"):
        run(small)


@pytest.mark.parametrize("policy", ["binpack", "spread", "latency", "BestFit", "FGD"])
def test_every_policy_places_whatever_fits(small, policy):
    outcome = run(Run(small.data, "default", policy, 7))
    assert 0 < outcome.allocated[90] <= outcome.allocated[100] <= 100


def test_pods_that_leave_give_back_all_that_they_had():
    ledger, draw = Ledger(NODES), random.Random(3)
    product = Product(NODES, mix_of(PODS), draw)
    empty = product._draft.freeze()
    placed = []
    for pod in PODS:
        decision = product.decide(pod, ledger)
        if decision is not None:
            ledger.take(pod, *decision)
            placed.append((pod, *decision))
    assert len(placed) > 10
    for pod, node, cards in placed:
        product.release(pod, node, cards)
    left = product._draft.freeze()
    for column in ("booked_mib", "booked_milli", "sharers", "cpu_booked_milli", "host_booked_mib"):
        assert (getattr(left, column) == getattr(empty, column)).all(), column


@pytest.mark.parametrize("policy", ["binpack", "FGD"])
def test_departures_lose_nothing_while_there_is_plenty(small, policy):
    allocated, lost = churn(Run(small.data, "default", policy, 7), load=0.2, lifetimes=2)
    assert 5 < allocated < 30
    assert lost == 0


def test_overload_fills_the_cluster_and_loses_the_rest(small):
    allocated, lost = churn(small, load=1.5, lifetimes=2)
    assert allocated > 80
    assert lost > 15


def test_the_same_seed_gives_the_same_arrivals():
    first, again, other = (arrivals(PODS, NODES, random.Random(seed)) for seed in (1, 1, 2))
    assert first == again != other
    target = 1.3 * 14_000
    assert target - 4_000 < sum(pod.gpu_milli for pod in first) < target + 4_000


def test_models_become_the_products_that_the_catalogue_knows():
    assert request_of(ONLY_T4).conditions.product_include == frozenset({"t4"})
    assert request_of(HALF).conditions.is_any


def test_baselines_settle_ties_by_one_fixed_order():
    ledger = Ledger([NODES[1]] * 4)
    policies = [
        best_fit(ledger, Ties(4, random.Random(5), fixed=True)),
        Fgd(ledger, PODS, Ties(4, random.Random(5), fixed=True)),
    ]
    for decide in policies:
        assert len({decide(HOST_ONLY) for _ in range(10)}) == 1
    drawn = best_fit(ledger, Ties(4, random.Random(5), fixed=False))
    assert len({drawn(HOST_ONLY) for _ in range(40)}) == 4
