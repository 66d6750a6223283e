"""Pods without GPUs as kube-scheduler alone would place them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from benchmarks.quality.ledger import Ledger
from benchmarks.quality.stock import scores, stock
from benchmarks.quality.trace import TraceNode, TracePod

NODES = [TraceNode("small", 16_000, 65_536, 2, "T4"), TraceNode("large", 96_000, 262_144, 8, "G2")]
POD = TracePod(4_000, 16_384, 0, 0, ())


@pytest.mark.parametrize(("strategy", "expected"), [("spreading", 62 + 87), ("packing", 37 + 87)])
def test_half_of_the_cpu_and_a_quarter_of_the_memory(strategy, expected):
    """LeastAllocated: (50 + 75) / 2 is 62; MostAllocated: (50 + 25) / 2 is 37; balance: 1 - 0.25 / 2 is 87."""
    each = [np.array([amount], np.int64) for amount in (8_000, 16_000, 16_384, 65_536)]
    assert scores(*each, strategy).tolist() == [expected]


@pytest.mark.parametrize(("strategy", "node"), [("spreading", 1), ("packing", 0)])
def test_the_emptier_or_the_fuller_node(strategy, node):
    choose = stock(Ledger(NODES), random.Random(1), strategy)
    assert choose(POD) == node


def test_nothing_fits():
    choose = stock(Ledger(NODES), random.Random(1), "packing")
    assert choose(TracePod(97_000, 1, 0, 0, ())) is None


def test_unknown_strategy_is_named_with_the_known():
    with pytest.raises(ValueError, match=r"CPU_ONLY: 'cheapest' is no strategy; there are spreading, packing"):
        stock(Ledger(NODES), random.Random(1), "cheapest")
