"""``python -m benchmarks.quality.colocation``: what placement by measured load gains in throughput.

16 nodes of four V100; jobs of one half card each, types drawn at random; Poisson arrivals, exponential lifetimes, no
queue. A job runs at the speed that was measured of it alone or beside its partner. ``LOAD=0.5,0.7,0.9`` is the part of
the fleet asked for on average, ``SEEDS`` and ``POLICY`` choose likewise. Every policy gets the same arrivals.
"""

from __future__ import annotations

import heapq
import random
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.quality.baselines import Decision
from benchmarks.quality.data import chosen_loads, chosen_seeds, listed
from benchmarks.quality.interference import Interference, misfit, read_interference, utilisations
from benchmarks.quality.ledger import Ledger
from benchmarks.quality.product import Product, mix_of
from benchmarks.quality.runs import arrive
from benchmarks.quality.trace import TraceNode, TracePod
from benchmarks.results import Row, quantile, show
from extender.settings import Settings
from scoring.registry import PROFILES

NODES, CARDS = 16, 4
HALF = TracePod(1_000, 1_024, 1, 500, ())
WHOLE = TracePod(1_000, 1_024, 1, 1000, ())
SLOTS = 2 * NODES * CARDS
LOADS = (0.5, 0.7, 0.9)
LIFETIMES, WARM_UP = 16.0, 4.0
"""Mean lifetimes that a run takes, and those at its start that are not measured."""

BASE = "binpack without load"
EXPECTANT = "binpack expecting wholes"
"""Plans for a mix in which every third pod asks for a whole card, though none comes."""

ORACLE = "oracle"
"""Not the product: knows the table, and takes the card on which the fleet's throughput grows the most."""

Card = tuple[int, int]


def _without_load(profile: str) -> dict[str, float]:
    return {name: weight for name, weight in PROFILES[profile].items() if name != "load"}


POLICIES: Mapping[str, Mapping[str, float]] = {
    BASE: _without_load("binpack"),
    "binpack": PROFILES["binpack"],
    EXPECTANT: PROFILES["binpack"],
    "spread": PROFILES["spread"],
    "spread without load": _without_load("spread"),
    "latency": PROFILES["latency"],
    "load first": {**PROFILES["binpack"], "load": 1.0},
    "packing then load": {"packing": 1.0, "load": 0.1},
}
"""Weights of the scorers by policy: those of the product, the same without ``load``, and two of our own."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job: when it comes and how long it stays, in mean lifetimes, and what it runs."""

    at: float
    stays: float
    type: str


def arrivals(load: float, types: Sequence[str], seed: int, lifetimes: float = LIFETIMES) -> list[Job]:
    """Return the jobs of a run; ``load`` is the part of the fleet asked for on average."""
    draw, now, jobs = random.Random(seed), 0.0, []
    while now < lifetimes:
        now += draw.expovariate(load * SLOTS)
        jobs.append(Job(now, draw.expovariate(1.0), draw.choice(types)))
    return jobs


class Fleet:
    """The cards and who runs on them, placed by the product."""

    def __init__(self, policy: str, utilisation: Mapping[str, float], draw: random.Random) -> None:
        self.running: dict[Card, list[str]] = {}
        self._utilisation = utilisation
        nodes = [TraceNode("v100", 64_000, 262_144, CARDS, "V100M16")] * NODES
        expected = [HALF, HALF, WHOLE] if policy == EXPECTANT else [HALF]
        settings = Settings(policy="tried", policies={"tried": dict(POLICIES[policy])})
        self._ledger = Ledger(nodes)
        self._product = Product(nodes, mix_of(expected), draw, settings)
        for node in range(NODES):
            self._report(node)

    def place(self, job_type: str) -> Card | None:
        """Return the node and the card that a job got, or None where no half card is left."""
        decision = arrive(self._decide, self._ledger, HALF)
        if decision is None:
            return None
        node, (card,) = decision
        self.running.setdefault((node, card), []).append(job_type)
        self._report(node)
        return node, card

    def leave(self, job_type: str, card: Card) -> None:
        """Give back what a job had."""
        node, slot = card
        self.running[card].remove(job_type)
        self._ledger.release(HALF, node, (slot,))
        self._product.release(HALF, node, (slot,))
        self._report(node)

    def _decide(self, pod: TracePod) -> Decision | None:
        return self._product.decide(pod, self._ledger)

    def _report(self, node: int) -> None:
        """Let the node's agent report at once: a card is as busy as its jobs together, and at most wholly."""
        running = (self.running.get((node, card), ()) for card in range(CARDS))
        self._product.report_load(node, [min(1.0, sum(self._utilisation[job] for job in jobs)) for jobs in running])


class Oracle:
    """Places where the sum of speeds grows the most, by the table itself; ties at random."""

    def __init__(self, measured: Interference, draw: random.Random) -> None:
        self.running: dict[Card, list[str]] = {(n, c): [] for n in range(NODES) for c in range(CARDS)}
        self._measured, self._draw = measured, draw

    def place(self, job_type: str) -> Card | None:
        """Return the node and the card that a job got, or None where no half card is left."""
        gains = {
            card: sum(speeds([*jobs, job_type], self._measured)) - sum(speeds(jobs, self._measured))
            for card, jobs in self.running.items()
            if len(jobs) < 2
        }
        if not gains:
            return None
        best = max(gains.values())
        card = self._draw.choice([card for card, gain in gains.items() if gain == best])
        self.running[card].append(job_type)
        return card

    def leave(self, job_type: str, card: Card) -> None:
        """Give back what a job had."""
        self.running[card].remove(job_type)


def speeds(jobs: Sequence[str], measured: Interference) -> list[float]:
    """Return the speeds of the jobs of one card, each as a part of its speed alone."""
    if len(jobs) < 2:
        return [1.0] * len(jobs)
    first, second = jobs
    return [measured.speed[first, second], measured.speed[second, first]]


@dataclass(slots=True)
class Tally:
    """What is measured after the warm-up: integrals over time, and the mean speed of every job that has left."""

    work: float = 0.0
    booked: float = 0.0
    cards: float = 0.0
    time: float = 0.0
    asked: int = 0
    lost: int = 0
    job_speeds: list[float] = field(default_factory=list)

    @property
    def per_half_card(self) -> float:
        """Return the mean speed of what is booked; 1 when every job runs as if alone."""
        return self.work / self.booked


class Simulation:
    """The running jobs of one fleet over time; ``tally`` is complete after ``run``."""

    def __init__(self, jobs: Sequence[Job], fleet: Fleet | Oracle, measured: Interference, warm_up: float) -> None:
        self.tally = Tally()
        self._jobs, self._fleet, self._measured, self._warm_up = jobs, fleet, measured, warm_up
        self._on_card: dict[Card, list[int]] = {}
        self._done: dict[int, float] = {}
        self._leaving: list[tuple[float, int, Card]] = []
        self._now = 0.0

    def run(self) -> Tally:
        """Let every job come, and go where its time ends before the last one comes."""
        for number, job in enumerate(self._jobs):
            while self._leaving and self._leaving[0][0] <= job.at:
                at, gone, card = heapq.heappop(self._leaving)
                self._pass(at)
                self._leave(gone, card)
            self._pass(job.at)
            self._come(number)
        return self.tally

    def _come(self, number: int) -> None:
        job = self._jobs[number]
        card = self._fleet.place(job.type)
        if job.at >= self._warm_up:
            self.tally.asked += 1
            self.tally.lost += card is None
        if card is not None:
            self._on_card.setdefault(card, []).append(number)
            self._done[number] = 0.0
            heapq.heappush(self._leaving, (job.at + job.stays, number, card))

    def _leave(self, number: int, card: Card) -> None:
        job = self._jobs[number]
        self._fleet.leave(job.type, card)
        self._on_card[card].remove(number)
        done = self._done.pop(number)
        if job.at >= self._warm_up:
            self.tally.job_speeds.append(done / job.stays)

    def _pass(self, until: float) -> None:
        passed, counted = until - self._now, max(until - max(self._now, self._warm_up), 0.0)
        for numbers in self._on_card.values():
            now = speeds([self._jobs[number].type for number in numbers], self._measured)
            for number, speed in zip(numbers, now, strict=True):
                self._done[number] += speed * passed
            self.tally.work += sum(now) * counted
            self.tally.booked += len(now) * counted
            self.tally.cards += bool(now) * counted
        self.tally.time += counted
        self._now = until


def measure(policy: str, load: float, seed: int, measured: Interference, lifetimes: float = LIFETIMES) -> Tally:
    """Return what one policy gave with one seed."""
    draw = random.Random(seed + 1)
    fleet = Oracle(measured, draw) if policy == ORACLE else Fleet(policy, utilisations(measured), draw)
    jobs = arrivals(load, measured.types, seed, lifetimes)
    return Simulation(jobs, fleet, measured, WARM_UP * lifetimes / LIFETIMES).run()


def main() -> int:
    """Run every policy at every load and print the table."""
    measured = read_interference()
    found = utilisations(measured)
    fitted = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
    print(f"utilisation by the model: {fitted}; misfit {misfit(measured, found):.3f}", file=sys.stderr)
    seeds = chosen_seeds(42, 43, 44, 45, 46)
    rows = []
    for load in chosen_loads(*LOADS):
        base = [measure(BASE, load, seed, measured) for seed in seeds]
        for policy in listed("POLICY") or [*POLICIES, ORACLE]:
            print(f"load {load}: {policy}", file=sys.stderr, flush=True)
            tallies = base if policy == BASE else [measure(policy, load, seed, measured) for seed in seeds]
            rows.append(_row(load, policy, tallies, base))
    show("quality-colocation", rows)
    return 0


def _row(load: float, policy: str, tallies: Sequence[Tally], base: Sequence[Tally]) -> Row:
    gains = [100 * (one.work / other.work - 1) for one, other in zip(tallies, base, strict=True)]
    return {
        "load": load,
        "policy": policy,
        "seeds": len(tallies),
        "gain_percent": round(statistics.fmean(gains), 2),
        "gain_least": round(min(gains), 2),
        "gain_most": round(max(gains), 2),
        "per_half_card": round(statistics.fmean(tally.per_half_card for tally in tallies), 3),
        "job_p10": round(statistics.fmean(quantile(tally.job_speeds, 0.1) for tally in tallies), 3),
        "cards_in_use": round(statistics.fmean(tally.cards / tally.time for tally in tallies), 1),
        "lost_percent": round(100 * sum(t.lost for t in tallies) / sum(t.asked for t in tallies), 2),
    }


if __name__ == "__main__":
    sys.exit(main())
