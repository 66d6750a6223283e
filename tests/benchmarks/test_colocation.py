"""The simulation of what placement by load gains: its figures, its model of utilisation and its books."""

from __future__ import annotations

import json
import random

import pytest

from benchmarks.quality.colocation import BASE, CARDS, NODES, ORACLE, POLICIES, Fleet, Job, Oracle, Simulation, measure
from benchmarks.quality.interference import (
    FIGURES,
    Interference,
    misfit,
    modelled,
    read_interference,
    utilisations,
)

BOTH_HALVE = Interference({("a", "a"): 0.5, ("a", "b"): 0.8, ("b", "a"): 0.6, ("b", "b"): 1.0})
MEASURED = read_interference()


class TestFigures:
    def test_no_figure_is_zero_which_stands_for_not_measured(self):
        figures = json.loads(FIGURES.read_text())
        assert all(alone > 0 for alone in figures["alone"].values())
        assert all(of_first > 0 < of_second for _, _, of_first, of_second in figures["pairs"])

    def test_every_pair_is_there_once_and_of_known_types(self):
        figures = json.loads(FIGURES.read_text())
        names = [(first, second) for first, second, _, _ in figures["pairs"]]
        assert names == sorted({tuple(sorted(pair)) for pair in names})
        assert {name for pair in names for name in pair} <= set(figures["alone"])

    def test_each_side_of_a_pair_has_its_own_part_of_its_speed_alone(self):
        assert {(other, one) for one, other in MEASURED.speed} == set(MEASURED.speed)
        assert MEASURED.speed["CycleGAN", "LM"] == pytest.approx(3.0501 / 3.6756, abs=1e-4)
        assert MEASURED.speed["LM", "CycleGAN"] == pytest.approx(46.1856 / 96.2464, abs=1e-4)
        # The two Transformers had 6.3534 and 6.3391: their mean counts.
        assert MEASURED.speed["Transformer", "Transformer"] == pytest.approx(6.34623 / 8.74181, abs=1e-4)

    def test_only_types_measured_with_all_others_are_drawn(self):
        assert MEASURED.types == ("A3C", "CycleGAN", "LM", "ResNet-18", "Transformer")

    def test_a_type_with_a_gap_is_left_out(self):
        assert Interference({("a", "a"): 0.5, ("a", "b"): 0.8, ("b", "a"): 0.6}).types == ("a",)

    def test_nothing_drawn_is_faster_with_a_partner_than_alone(self):
        assert max(MEASURED.speed[a, b] for a in MEASURED.types for b in MEASURED.types) <= 1


class TestUtilisation:
    @pytest.mark.parametrize(
        ("one", "other", "speed"),
        [
            pytest.param(0.4, 0.6, 1.0, id="both fit"),
            pytest.param(1.0, 1.0, 0.5, id="two that take all"),
            pytest.param(0.25, 1.0, 0.8, id="a quarter too much"),
        ],
    )
    def test_what_two_want_beyond_the_card_slows_both(self, one, other, speed):
        assert modelled(one, other) == pytest.approx(speed)

    def test_speeds_made_by_the_model_give_the_utilisations_back(self):
        made = {"a": 0.9, "b": 0.6, "c": 0.75}
        measured = Interference({(a, b): modelled(made[a], made[b]) for a in made for b in made})
        found = utilisations(measured)
        assert found == pytest.approx(made, abs=0.002)
        assert misfit(measured, found) == pytest.approx(0, abs=0.002)

    def test_the_figures_misfit_is_known(self):
        assert misfit(MEASURED, utilisations(MEASURED)) == pytest.approx(0.079, abs=0.001)


class TestFleet:
    @pytest.mark.parametrize("policy", POLICIES)
    def test_two_jobs_share_a_card_at_most_and_none_is_refused_while_half_a_card_is_left(self, policy):
        fleet = Fleet(policy, utilisations(MEASURED), random.Random(1))
        for _ in range(2 * NODES * CARDS):
            assert fleet.place("LM") is not None
        assert fleet.place("LM") is None
        assert [len(jobs) for jobs in fleet.running.values()] == [2] * NODES * CARDS

    def test_what_has_left_is_free_again(self):
        fleet = Fleet(BASE, utilisations(MEASURED), random.Random(1))
        for _ in range(2 * NODES * CARDS):
            fleet.place("LM")
        fleet.leave("LM", (3, 2))
        assert fleet.place("A3C") == (3, 2)

    @pytest.mark.parametrize(
        ("policy", "cards"),
        [
            pytest.param(BASE, 1, id="by allocation the two share"),
            pytest.param("binpack", 2, id="by load they do not"),
            pytest.param("spread", 2, id="spread"),
        ],
    )
    def test_two_busy_jobs(self, policy, cards):
        fleet = Fleet(policy, utilisations(MEASURED), random.Random(1))
        assert len({fleet.place("CycleGAN"), fleet.place("CycleGAN")}) == cards

    def test_the_oracle_pairs_whom_the_table_says(self):
        # b beside b loses nothing, a beside b 0.6; so the second b joins the first where no card is empty.
        oracle = Oracle(BOTH_HALVE, random.Random(1))
        cards = {job: oracle.place(job) for job in ("a", "b")}
        for _ in range(NODES * CARDS - 2):
            oracle.place("a")
        assert oracle.place("b") == cards["b"]


class TestSimulation:
    def test_work_is_the_time_at_each_speed(self):
        # a runs alone until 1 and beside b until 2: 1 + 0.8; b has 0.6, then is alone until 3: 0.6 + 1.
        jobs = [Job(0.0, 2.0, "a"), Job(1.0, 2.0, "b"), Job(4.0, 1.0, "a")]
        tally = Simulation(jobs, _OneCard(), BOTH_HALVE, warm_up=0.0).run()
        assert tally.job_speeds == pytest.approx([0.9, 0.8])
        assert tally.work == pytest.approx(1.8 + 1.6)
        assert tally.booked == pytest.approx(4.0)
        assert tally.cards == pytest.approx(3.0)
        assert tally.time == pytest.approx(4.0)
        assert tally.per_half_card == pytest.approx(0.85)
        assert (tally.asked, tally.lost) == (3, 0)

    def test_before_the_warm_up_nothing_counts(self):
        jobs = [Job(0.0, 2.0, "a"), Job(1.0, 2.0, "b"), Job(4.0, 1.0, "a")]
        tally = Simulation(jobs, _OneCard(), BOTH_HALVE, warm_up=1.5).run()
        assert tally.work == pytest.approx(0.5 * 1.4 + 1.0)
        assert tally.job_speeds == []
        assert tally.asked == 1

    def test_a_third_job_is_lost(self):
        jobs = [Job(0.0, 9.0, "a"), Job(1.0, 9.0, "b"), Job(2.0, 9.0, "b")]
        assert Simulation(jobs, _OneCard(), BOTH_HALVE, warm_up=0.0).run().lost == 1

    @pytest.mark.parametrize("policy", [BASE, ORACLE])
    def test_a_seed_gives_the_same_run_again(self, policy):
        assert measure(policy, 0.5, 1000, MEASURED, 2.0) == measure(policy, 0.5, 1000, MEASURED, 2.0)


class _OneCard(Oracle):
    """A fleet of one card."""

    def __init__(self) -> None:
        super().__init__(BOTH_HALVE, random.Random(1))
        self.running = {(0, 0): []}
