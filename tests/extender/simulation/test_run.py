"""``make run`` as a user starts it: the whole product in processes of its own, on loopback."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import ClassVar, Self

import pytest

from extender.allocation import encode_allocation
from extender.simulation.agents import devices_of
from extender.simulation.audit import Capacity, audit
from extender.simulation.fleet import GROUPS, NodeGroup, simulated_hosts
from extender.simulation.options import InvalidOption, read_options
from extender.simulation.trace import load_nodes
from scoring.request import Allocation, Share, SharingMode

PATIENCE_S = 120


class Running:
    """One simulation, its output read line by line."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "extender.simulation.run", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={key: value for key, value in os.environ.items() if key not in ("FOR", "SEED", "PORT")},
        )
        self.lines: list[str] = []

    def wait_for(self, pattern: str) -> re.Match[str]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            found = re.search(pattern, line)
            if found:
                return found
        pytest.fail(f"no line like {pattern!r} in {self.lines}; {self.process.communicate()[1]}")

    def finish(self) -> tuple[int, dict]:
        out, errors = self.process.communicate(timeout=PATIENCE_S)
        assert errors == ""
        return self.process.returncode, json.loads(out.strip().splitlines()[-1])

    def children(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(pid) for path in children for pid in path.read_text().split()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def ended(pids: list[int], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.slow
def test_a_short_run_places_pods_oversubscribes_nothing_and_leaves_no_process():
    with Running("--for", "6", "--seed", "3") as run:
        url = run.wait_for(r"Live page: (http://127\.0\.0\.1:\d+/)").group(1)
        run.wait_for("ready after")
        children = run.children()
        with urllib.request.urlopen(url, timeout=10) as page:
            assert b"<title>Tangram" in page.read()
        with urllib.request.urlopen(f"{url}v1/stream", timeout=10) as stream:
            first = json.loads(stream.readline().removeprefix(b"data: "))
        assert first["summary"]["nodes"] == 20
        status, summary = run.finish()
    assert status == 0
    assert (summary["nodes"], summary["devices"]) == (20, 126)
    assert summary["oversubscribed_devices"] == 0
    assert summary["pods_bound"] > 0
    assert summary["gpu_allocated_percent"] > 0
    assert min(summary["filter_p99_ms"], summary["prioritize_p99_ms"], summary["bind_p99_ms"]) > 0
    assert summary["decisions"] >= 2 * summary["pods_bound"] * 0.8
    assert {"pods_waiting", "bind_conflicts"} <= set(summary)
    assert len(children) == 2
    assert ended(children, 1.0)


@pytest.mark.slow
def test_the_product_and_the_agents_end_with_a_parent_that_was_killed():
    with Running() as run:
        run.wait_for("ready after")
        children = run.children()
        run.process.send_signal(signal.SIGKILL)
        run.process.wait(10)
        assert len(children) == 2
        assert ended(children, 20.0)


class TestOptions:
    def test_the_command_line_wins_over_the_environment(self):
        found = read_options(["--for", "5", "--seed", "9"], {"FOR": "60", "SEED": "1"})
        assert (found.for_s, found.seed) == (5.0, 9)

    def test_without_options_it_runs_until_interrupted_on_a_free_port(self):
        found = read_options([], {})
        assert found.for_s is None
        assert found.port > 0

    @pytest.mark.parametrize(
        ("environment", "message"),
        [
            pytest.param({"FOR": "soon"}, "FOR: found 'soon', valid is a number from 1 to", id="words"),
            pytest.param({"FOR": "0"}, "FOR: found '0'", id="no time"),
            pytest.param({"FOR": "nan"}, "FOR: found 'nan'", id="not a number"),
            pytest.param({"SEED": "-1"}, "SEED: found '-1'", id="negative seed"),
            pytest.param(
                {"PORT": "70000"}, "PORT: found '70000', valid is a number from 0 to 65535", id="no such port"
            ),
        ],
    )
    def test_what_cannot_be_used_is_named(self, environment, message):
        with pytest.raises(InvalidOption) as refused:
            read_options([], environment)
        assert message in str(refused.value)

    def test_a_port_that_is_taken_is_refused(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(InvalidOption, match=f"PORT: found {port}, valid is a port that is free"):
                read_options([], {"PORT": str(port)})


class TestFleet:
    def test_the_fleet_spans_the_generations_with_mig_and_a_mixed_node(self):
        devices = {host.name: devices_of(host) for host in simulated_hosts(load_nodes())}
        names = {device.name for held in devices.values() for device in held}
        for product in ("K80", "P100", "V100", "T4", "A100", "L4", "L40S", "H100", "H200", "B200"):
            assert any(product in name for name in names), product
        assert any(device.mig for device in devices["a100-1"])
        assert len({device.name for device in devices["mixed-1"]}) == 6

    def test_uuids_are_unique(self):
        uuids = [device.uuid for host in simulated_hosts(load_nodes()) for device in devices_of(host)]
        assert len(set(uuids)) == len(uuids) == 126

    def test_a_host_that_the_trace_does_not_have_is_refused(self):
        group = NodeGroup("x", 1, ({"product": "T4"},), ("T5", 4))
        with pytest.raises(ValueError, match=r"host of group x: found \('T5', 4\)"):
            simulated_hosts(load_nodes(), [group])

    def test_groups_come_oldest_generation_first(self):
        assert GROUPS[0].name == "k80"


def a_pod(*shares: tuple[str, int, int], node: str = "n", phase: str = "Running", text: str | None = None) -> dict:
    held = tuple(Share(uuid, mib, milli, SharingMode.TIME_SLICING) for uuid, mib, milli in shares)
    allocation = encode_allocation(Allocation((("main", held),), "binpack")) if text is None else text
    return {
        "metadata": {"annotations": {"tangram.dev/allocation": allocation}},
        "spec": {"nodeName": node},
        "status": {"phase": phase},
    }


class TestAudit:
    DEVICES: ClassVar = {"GPU-0": Capacity("n", 1000, 1000), "GPU-1": Capacity("n", 1000, 1000)}

    def judge(self, *pods):
        return audit(pods, self.DEVICES)

    def test_devices_that_are_exactly_full_are_not_over(self):
        found = self.judge(a_pod(("GPU-0", 600, 500)), a_pod(("GPU-0", 400, 500)))
        assert found.oversubscribed == frozenset()
        assert (found.holders, found.compute_share, found.memory_share) == (2, 0.5, 0.5)

    @pytest.mark.parametrize("share", [("GPU-0", 401, 1), ("GPU-0", 1, 501)], ids=["memory", "compute"])
    def test_one_too_much_of_either_is_found(self, share):
        assert self.judge(a_pod(("GPU-0", 600, 500)), a_pod(share)).oversubscribed == {"GPU-0"}

    def test_a_pod_that_ended_holds_nothing(self):
        ended_pod = a_pod(("GPU-0", 1000, 1000), phase="Succeeded")
        assert self.judge(ended_pod, a_pod(("GPU-0", 1000, 1000))).oversubscribed == frozenset()

    @pytest.mark.parametrize(
        "pod",
        [a_pod(("GPU-9", 1, 1)), a_pod(("GPU-0", 1, 1), node="elsewhere")],
        ids=["unknown device", "device of another node"],
    )
    def test_a_share_of_what_the_node_does_not_have_is_found(self, pod):
        assert self.judge(pod).oversubscribed

    def test_an_allocation_that_cannot_be_read_is_counted(self):
        assert self.judge(a_pod(text="{")).unreadable == 1
