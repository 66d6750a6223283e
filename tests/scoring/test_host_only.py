"""Pods without a GPU: where their CPU costs GPUs least."""

from __future__ import annotations

import numpy as np

from scoring.outlook import Outlook
from scoring.pipeline import evaluate
from scoring.request import PodRequest
from scoring.status import Code
from scoring.workload import Mix, Shape
from tests.support.fleets import BINPACK, T4, fleet, gpu, node, winner

MIX = Mix(((Shape(1, None, 1000, cpu_milli=12_000), 1.0),))
POD = PodRequest((), cpu_milli=12_000)


def test_it_fits_everywhere_as_far_as_gpus_go():
    found = evaluate(POD, fleet(a=[gpu(T4)], b=[gpu(T4, booked_milli=1000)]), BINPACK, Outlook.empty())
    assert (found.code == Code.FIT).all()
    assert not found.slots


def test_it_takes_cpu_that_no_gpu_needs():
    of = fleet(
        needed=node(*[gpu(T4)] * 8, cpu_capacity_milli=96_000),
        spare=node(*[gpu(T4)] * 2, cpu_capacity_milli=104_000),
    )
    assert winner(POD, of, outlook=Outlook.of(MIX, of.kinds).before(of)) == "spare"


def test_it_takes_a_node_whose_gpus_are_gone():
    gone = gpu(T4, booked_milli=1000, booked_mib=T4.total_mib, sharers=1)
    of = fleet(idle=node(*[gpu(T4)] * 4, cpu_capacity_milli=48_000), full=node(gone, cpu_capacity_milli=12_000))
    assert winner(POD, of, outlook=Outlook.of(MIX, of.kinds).before(of)) == "full"


def test_one_node_scores_as_among_many():
    of = fleet(
        a=[gpu(T4)], b=node(*[gpu(T4)] * 3, cpu_capacity_milli=16_000), c=node(gpu(T4), cpu_capacity_milli=4_000)
    )
    outlook = Outlook.of(MIX, of.kinds).before(of)
    alone = [evaluate(POD, of.take(np.array([row])), BINPACK, outlook).score[0] for row in range(3)]
    assert evaluate(POD, of, BINPACK, outlook).score.tolist() == alone
