"""One run of the benchmark: arrivals one by one until the cluster has been asked for 100 % of its GPUs."""

from __future__ import annotations

import random
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.quality.baselines import Decision, Fgd, Policy, Ties, best_fit
from benchmarks.quality.ledger import BrokenDecision, Ledger
from benchmarks.quality.product import Product, mix_of
from benchmarks.quality.stock import stock
from benchmarks.quality.trace import TraceNode, TracePod, arrivals, read_nodes, read_pods
from extender.settings import Settings

BASELINES = ("BestFit", "FGD")
READINGS = (90, 95, 97, 100)
"""GPU demand arrived, in per cent of capacity, at which the allocation is reported."""


@dataclass(slots=True)
class Outcome:
    """Allocated per cent at each whole per cent of demand, and pods lost by kind."""

    allocated: dict[int, float] = field(default_factory=dict)
    lost: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Run:
    """What to run. ``policy`` is a baseline or one of the product's; ``knows_mix`` hands it the list's shapes.

    ``cpu_only`` empty lets the product place pods without GPUs too; else one of ``stock.STRATEGIES`` does.
    """

    data: Path
    workload: str
    policy: str
    seed: int
    fixed_ties: bool = True
    knows_mix: bool = True
    cpu_only: str = ""


Observer = Callable[[TracePod, Decision | None, Ledger], None]
"""Sees each pod, its node and cards (None: lost), and the ledger afterwards."""


def arrive(decide: Policy, ledger: Ledger, pod: TracePod) -> Decision | None:
    """Have a pod decided on and book it; None where it is lost.

    Raises BrokenDecision for a decision that breaks a limit or leaves a pod that would have fitted.
    """
    decision = decide(pod)
    if decision is not None:
        ledger.take(pod, *decision)
    elif ledger.fits(pod).any():
        raise BrokenDecision(f"{pod} was refused and would have fitted")
    return decision


def run(what: Run, observe: Observer | None = None) -> Outcome:
    """Run once; raise BrokenDecision for a decision that breaks a limit or leaves a pod that would have fitted."""
    nodes, pods = read_nodes(what.data), read_pods(what.data, what.workload)
    draw = random.Random(what.seed)
    ledger = Ledger(nodes)
    order = arrivals(pods, nodes, draw)
    decide = decider(what, ledger, nodes, pods, draw).decide
    outcome, demand, curve = Outcome(), 0, _no_readings()
    for pod in order:
        demand += pod.gpu_milli
        decision = arrive(decide, ledger, pod)
        if decision is None:
            outcome.lost[kind_of_pod(pod)] += 1
        if observe is not None:
            observe(pod, decision, ledger)
        at = round(100 * demand / ledger.capacity_milli)
        if at > max(READINGS):
            break
        curve[at].append(100 * ledger.allocated_milli / ledger.capacity_milli)
    outcome.allocated = {at: statistics.fmean(values) for at, values in curve.items()}
    return outcome


def _no_readings() -> defaultdict[int, list[float]]:
    return defaultdict(list)


@dataclass(frozen=True, slots=True)
class Decider:
    """Who decides where a pod goes, and is told when one has gone from its node and cards."""

    decide: Policy
    release: Callable[[TracePod, int, tuple[int, ...]], None]


def decider(
    what: Run, ledger: Ledger, nodes: Sequence[TraceNode], pods: Sequence[TracePod], draw: random.Random
) -> Decider:
    """Return the policy that a run names. The baselines read the ledger and so need not be told of what has gone."""
    if what.policy in BASELINES:
        ties = Ties(len(nodes), draw, fixed=what.fixed_ties)
        return Decider(best_fit(ledger, ties) if what.policy == "BestFit" else Fgd(ledger, pods, ties), _nothing)
    product = Product(nodes, mix_of(pods) if what.knows_mix else None, draw, Settings(policy=what.policy))
    by_stock = stock(ledger, draw, what.cpu_only) if what.cpu_only else None

    def decide(pod: TracePod) -> Decision | None:
        if by_stock is None or pod.cards:
            return product.decide(pod, ledger)
        node = by_stock(pod)
        if node is None:
            return None
        product.take_host(pod, node)
        return node, ()

    return Decider(decide, product.release)


def _nothing(_pod: TracePod, _node: int, _cards: tuple[int, ...]) -> None:
    pass


def kind_of_pod(pod: TracePod) -> str:
    """Return the kind by which lost pods are counted."""
    if not pod.cards:
        return "cpu-only"
    return "share" if pod.card_milli < 1000 else f"{pod.cards} cards"
