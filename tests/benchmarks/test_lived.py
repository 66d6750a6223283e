"""The trace with its own times, on clusters small enough to follow by hand."""

from __future__ import annotations

import gzip

import pytest

from benchmarks.quality import lived
from benchmarks.quality.data import folder
from benchmarks.quality.lived import Peak, Stay, part_of, peak_of, read_stays, replay
from benchmarks.quality.runs import Run
from benchmarks.quality.trace import TraceNode, TracePod

WHOLE = TracePod(8_000, 1_024, 1, 1000, ())
HALF = TracePod(4_000, 1_024, 1, 500, ())
HOST_ONLY = TracePod(4_000, 1_024, 0, 0, ())
NODES = [TraceNode(f"{model}-{at}", 16_000, 65_536, 2, model) for at in range(4) for model in ("T4", "P100")]
STAYS = [Stay(0, WHOLE, 10), Stay(5, WHOLE, 10), Stay(5, HALF, 1), Stay(10, WHOLE, 1)]


def test_the_peak_lets_pods_go_before_others_come():
    # At 5 there are 2,500; at 10 one goes before one comes, and the half has gone: 2,000.
    assert peak_of(STAYS) == Peak(2_500, 5)


@pytest.mark.parametrize(
    ("load", "names"),
    [
        # 2.5 GPUs asked: of 16 GPUs 0.16, of every 2nd node's 8 0.31, of every 4th node's 4 0.63.
        pytest.param(0.15, 8, id="all nodes"),
        pytest.param(0.33, 4, id="every second"),
        pytest.param(0.6, 2, id="every fourth"),
        pytest.param(3.0, 1, id="one is the least"),
    ],
)
def test_part_of_the_nodes_has_the_load_nearest_to_what_is_wanted(load, names):
    part = part_of(NODES, 2_500, load, start=1)
    assert len(part) == names
    assert names == 1 or {node.model for node in part} == {"T4", "P100"}


def test_who_comes_while_the_cluster_is_full_is_lost(monkeypatch):
    monkeypatch.setattr(lived, "read_nodes", lambda _: NODES)
    monkeypatch.setattr(lived, "read_stays", lambda *_: STAYS)
    for policy in lived.POLICIES:
        found = replay(Run(folder(), "default", policy, 7), load=1.25)
        # One node of two GPUs: at 5 the second whole fills it and the half is lost; at 10 one is free again.
        assert (found.gpus, found.load) == (2, 1.25)
        assert found.allocated_at_peak_percent == 100
        assert found.lost == {"share": 1}
        assert found.lost_percent == pytest.approx(100 * 500 / 3_500)


def test_pods_without_gpus_are_lost_for_want_of_cores(monkeypatch):
    stays = [Stay(0, WHOLE, 10), Stay(1, WHOLE, 10), Stay(2, HOST_ONLY, 10)]
    monkeypatch.setattr(lived, "read_nodes", lambda _: NODES)
    monkeypatch.setattr(lived, "read_stays", lambda *_: stays)
    found = replay(Run(folder(), "default", "binpack", 7), load=1.0)
    assert (found.lost, found.lost_percent) == ({"cpu-only": 1}, 0)


def test_stays_are_those_that_were_scheduled_by_arrival(tmp_path):
    rows = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
        "creation_time,deletion_time,scheduled_time\n"
        "late,8000,1024,1,1000,,LS,Running,50,90,60\n"
        "never,8000,1024,1,1000,,LS,Pending,20,80,\n"
        "early,4000,1024,1,500,,LS,Failed,0,10,0\n"
    )
    with gzip.open(tmp_path / "openb_pod_list_default.csv.gz", "wt") as file:
        file.write(rows)
    assert read_stays(tmp_path) == [Stay(0, HALF, 10), Stay(50, WHOLE, 30)]
