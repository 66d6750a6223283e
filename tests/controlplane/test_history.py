"""Explanations outlive the replica that gave them where it has a volume; what cannot be kept costs no decision."""

import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from node_agent.simulated_builders import node_description
from tests.controlplane.api import Json, wait_for
from tests.controlplane.conftest import PlaneFactory
from tests.controlplane.installed import LOOPBACK, NODES, Installed, Pair, install, may_name_hosts
from tests.controlplane.plane import ControlPlane
from tests.controlplane.stack import EXTENDER, Stack, advertised, open_stack, pod
from tests.controlplane.test_lease import WITHIN_S, create, wait_running

pytestmark = pytest.mark.skipif(not may_name_hosts(), reason="a pair needs host names of its own: unshare -u, root")

SECOND = "127.0.0.2"
NOWHERE_MIB = 60_000  # more than a device, less than what a node has in all, so that kube-scheduler asks
PODS = 12
SMALL_DISK = "96k"
DESCRIPTIONS = [node_description("gpu-a", "A100-40GB", 4)]


@pytest.fixture(scope="module")
def installed(start_control_plane: PlaneFactory) -> Iterator[Installed]:
    plane = start_control_plane(controller_manager=True)
    with install(plane, "webhooks.enabled=false", "history.persistence.enabled=true") as release:
        release.lead_names_to(LOOPBACK, SECOND)
        yield release


@pytest.fixture(scope="module")
def pairs(installed: Installed) -> dict[str, Pair]:
    pairs = {
        "pair-a": installed.start_pair("pair-a"),
        "pair-b": installed.start_pair("pair-b", address=SECOND),
    }
    for node in NODES:
        installed.start_agent(node, *pairs.values())
    found = installed.plane.api
    wait_for("every node advertises", lambda: all(map(advertised, found.items("/api/v1/nodes"))), within_s=60)
    return pairs


@pytest.fixture
def plane(start_control_plane: PlaneFactory) -> ControlPlane:
    return start_control_plane(users=[EXTENDER])


class TestLeaderIsKilled:
    """The chart with volumes: two pairs, each with a file of its own, behind the chart's headless name."""

    def test_the_other_replica_serves_what_its_volume_holds_merged_with_its_own(
        self, installed: Installed, pairs: dict[str, Pair]
    ) -> None:
        leader = wait_for("a pair holds the lease", lambda: pairs.get(installed.lease_holder()))
        (other,) = (each for each in pairs.values() if each is not leader)
        nowhere = create(installed, "nowhere", memory=NOWHERE_MIB)
        runs = create(installed, "runs")
        wait_running(installed, runs, 60)
        wait_for("the leader kept why", lambda: told_by(explained(installed, leader, nowhere)) == {leader.name})

        leader.scheduler.kill()
        leader.extender.kill()
        killed_at = time.monotonic()
        wait_running(installed, create(installed, "after"), WITHIN_S - (time.monotonic() - killed_at))
        wait_for("the other kept why", lambda: other.name in told_by(explained(installed, other, nowhere)), within_s=60)
        alone = explained(installed, other, nowhere)
        assert told_by(alone) == {other.name}
        assert [each["address"] for each in alone["peers"] if each["problem"]] == [leader.address], alone["peers"]

        leader.extender.start()
        leader.extender.wait_until(leader.is_ready, within_s=60)
        merged = explained(installed, other, nowhere)
        assert told_by(merged) == {leader.name, other.name}
        times = [each["last_at"] for each in merged["attempts"]]
        assert times == sorted(times, reverse=True)
        assert {each["replica"]: each["is_durable"] for each in merged["kept"]} == {leader.name: True, other.name: True}
        assert told_by(explained(installed, other, runs)) == {leader.name}, "who decided it was away for a while"


def explained(installed: Installed, pair: Pair, name: str) -> Json:
    answer = pair.ask(f"/v1/explain/default/{name}", token=installed.viewer_token(), within_s=10)
    return answer.json() if answer.is_success else {"attempts": [], "peers": [], "kept": []}


def told_by(answer: Json) -> set[str]:
    return {attempt["replica"] for attempt in answer["attempts"]}


class TestNothingCanBeKept:
    """The real scheduler places pods as ever while the history's disk is full, or its file is locked."""

    def test_full_disk_costs_explanations_and_no_decision(self, plane: ControlPlane, tmp_path: Path) -> None:
        disk = tmp_path / "volume"
        disk.mkdir()
        with ExitStack() as mounted:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", disk], check=True)
            mounted.callback(lambda: subprocess.run(["umount", "-l", disk], check=True))
            with open_stack(plane, DESCRIPTIONS, {"TANGRAM_HISTORY__PATH": str(disk / "history.db")}) as stack:
                wait_for("the file is made", (disk / "history.db").exists)
                (disk / "filler").write_bytes(bytes(free_bytes(disk)))
                all_run(stack, "full")
                wait_for("losses are counted", lambda: lost(stack) > 0)
                stack.clear()

    def test_locked_file_costs_explanations_and_no_decision(self, plane: ControlPlane, tmp_path: Path) -> None:
        path = tmp_path / "history.db"
        with open_stack(plane, DESCRIPTIONS, {"TANGRAM_HISTORY__PATH": str(path)}) as stack:
            wait_for("the file is made", path.exists)
            with ExitStack() as locked:
                other = sqlite3.connect(path, isolation_level=None, timeout=10)
                locked.callback(other.close)
                other.execute("BEGIN IMMEDIATE")
                all_run(stack, "locked")
                wait_for("losses are counted", lambda: lost(stack) > 0)
            wait_for("the file is used again", lambda: kept_again(stack), within_s=60)
            stack.clear()


def all_run(stack: Stack, prefix: str) -> None:
    """Have pods placed, one that fits nowhere among them, and check the books."""
    stack.create(*(pod(f"{prefix}-{number}", memory=8192) for number in range(PODS)))
    stack.create(pod(f"{prefix}-nowhere", memory=NOWHERE_MIB))
    stack.wait_all(PODS, within_s=30)
    stack.wait_refusal(f"{prefix}-nowhere", "larger than any GPU")
    assert len(stack.check_books()) > 0


def lost(stack: Stack) -> float:
    return stack.metric("tangram_extender_explanations_lost_total")


def kept_again(stack: Stack) -> bool:
    """Have one more pod refused, and tell whether that is remembered."""
    name = f"again-{time.monotonic_ns()}"
    stack.create(pod(name, memory=NOWHERE_MIB))
    stack.wait_refusal(name, "larger than any GPU")
    time.sleep(1.0)
    return bool(stack.extender_says(f"/v1/explain/default/{name}")["attempts"])


def free_bytes(directory: Path) -> int:
    found = os.statvfs(directory)
    return int(found.f_bavail * found.f_frsize)
