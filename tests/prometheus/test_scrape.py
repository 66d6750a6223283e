"""A real Prometheus scrapes the product and its agents under a workload; every panel and every rule finds data."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from extender.simulation.agents import devices_of
from tests.manifests.test_rules import ALERT_RULES, ALERTS, RECORDING, rules_of
from tests.prometheus.binaries import prometheus
from tests.prometheus.server import Prometheus, free_ports
from tests.prometheus.sick_node import SickNode
from tests.prometheus.town import Plan, hosts

pytestmark = pytest.mark.slow

RUNS_S = 32.0
HOURS_S = 75.0
"""GPU hours are added up every 30 s, from the second time on that a pod is seen."""
SETTLES_S = 240.0
ENDS_S = 60.0

ROOT = Path(__file__).parents[2]
BOARDS = sorted((ROOT / "manifests/dashboards").glob("*.json"))
QUERIES = [
    pytest.param(target["expr"], id=f"{path.stem}: {panel['title']}: {target['refId']}")
    for path in BOARDS
    for panel in json.loads(path.read_text())["panels"]
    for target in panel.get("targets", ())
]
ACTIVE = {
    "TangramGpuXidCritical": "firing",
    "TangramGpuXidContained": "firing",
    "TangramGpuUncorrectedEcc": "firing",
    "TangramGpuRowRemapFailed": "firing",
    "TangramGpuRecoveryAction": "pending",
    "TangramGpuRepairPending": "pending",
    "TangramGpuOut": "pending",
    "TangramGpuHot": "pending",
    "TangramGpuHardwareSlowdown": "pending",
    "TangramGpuPowerBrake": "pending",
    "TangramGpuSoftwareThermal": "pending",
    "TangramForeignMemory": "pending",
    "TangramPodMemoryOveruse": "pending",
    "TangramPodComputeOveruse": "pending",
    "TangramNvmlErrors": "pending",
    "TangramSharesOnFailedDevices": "pending",
    "TangramPodsWaiting": "pending",
}
"""What the planted faults and the workload raise; where an alert waits for minutes, it is pending."""


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    binary = prometheus()
    names = [host.name for host in hosts()]
    product, sick, *agents = free_ports(2 + len(names))
    plan = Plan(RUNS_S, product, dict(zip(names, agents, strict=True)))
    jobs = {"tangram-extender": [product], "tangram-agent": [*agents, sick]}
    with (
        Prometheus(binary, tmp_path_factory.mktemp("prometheus"), jobs, [RECORDING, ALERTS]) as server,
        SickNode(sick),
        subprocess.Popen(
            [sys.executable, "-m", "tests.prometheus.town", msgspec.json.encode(plan).decode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        ) as town,
    ):
        try:
            _wait_until_settled(town)
            _wait_for(server, "increase(tangram_extender_gpu_hours_booked_total[10m])")
            yield server
        finally:
            assert town.stdin is not None
            town.stdin.close()
            with ended_after(town, ENDS_S):
                town.wait()


def _wait_until_settled(town: subprocess.Popen[str]) -> None:
    assert town.stdout is not None
    told = []
    with ended_after(town, SETTLES_S):
        for line in town.stdout:
            told.append(line)
            if line.startswith("settled"):
                assert line == "settled 0\n", told
                return
    pytest.fail(f"the town ended, or was not settled after {SETTLES_S:g} s: {told}")


@contextmanager
def ended_after(process: subprocess.Popen[str], seconds: float) -> Iterator[None]:
    """Kill a process that is still there when so many seconds of the block have passed."""
    alarm = threading.Timer(seconds, process.kill)
    alarm.start()
    try:
        yield
    finally:
        alarm.cancel()


def _wait_for(server: Prometheus, expression: str) -> None:
    deadline = time.monotonic() + HOURS_S
    while not server.query(expression):
        assert time.monotonic() < deadline, expression
        time.sleep(1.0)


def test_every_target_is_scraped(scraped):
    found = {target["labels"]["instance"]: target for target in scraped.targets()}
    assert len(found) == 2 + len(hosts())
    for instance, target in found.items():
        assert target["health"] == "up", (instance, target["lastError"])


def test_extender_and_agents_count_the_same_devices(scraped):
    devices = sum(len(devices_of(host)) for host in hosts())
    assert value(scraped, "sum(tangram:gpu_devices:by_product)") == devices
    assert value(scraped, 'sum(tangram:gpu_count:by_node{node!="sick-1"})') == devices


def test_extender_and_agents_tell_the_same_memory_booked(scraped):
    booked = value(scraped, "sum(tangram_booked_gpu_memory_bytes)")
    assert booked > 0
    assert value(scraped, "sum(tangram:gpu_memory_allocated_bytes:by_product)") == booked


def value(server: Prometheus, expression: str) -> float:
    [found] = server.query(expression)
    return float(found["value"][1])


@pytest.mark.parametrize("expression", QUERIES)
def test_every_panel_finds_data(scraped, expression):
    asked = re.sub(r"\$(product|node|namespace)", ".*", expression).removesuffix(" or vector(0)")
    assert scraped.query(asked), asked


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule["record"]) for rule in rules_of(RECORDING)])
def test_every_recording_rule_finds_and_records_data(scraped, rule):
    assert scraped.query(rule["expr"])
    assert scraped.query(rule["record"])


def test_prometheus_is_content_with_every_rule(scraped):
    found = {rule["name"]: rule for rule in scraped.rules()}
    assert set(found) == {*ALERT_RULES, *(rule["record"] for rule in rules_of(RECORDING))}
    assert {name: rule.get("lastError") for name, rule in found.items() if rule["health"] != "ok"} == {}


@pytest.mark.parametrize("alert", ALERT_RULES)
def test_what_every_alert_compares_is_there(scraped, alert):
    for part in sides(ALERT_RULES[alert]["expr"]):
        assert scraped.query(part), part


@pytest.mark.parametrize(("alert", "state"), ACTIVE.items())
def test_planted_faults_raise_their_alerts(scraped, alert, state):
    assert scraped.query(f'ALERTS{{alertname="{alert}", alertstate="{state}"}}')


def test_a_cluster_at_work_raises_no_alert_about_the_extender(scraped):
    names = "TangramExtenderDown|TangramWatchSilent|TangramNoReports|TangramBooksDrift|TangramRequestErrors"
    assert scraped.query(f'ALERTS{{alertname=~"{names}"}}') == []


def sides(expression: str) -> list[str]:
    """Return what an alert compares, without the bounds: each of these has to be there before it can ever fire.

    Selectors of states that do not occur here are widened to any state; a day ago there was nothing.
    """
    text = re.sub(r"absent\((.*)\)", r"\1", " ".join(expression.split()))
    text = re.sub(r" offset 1[dh]", "", text)
    text = re.sub(r" (?:>|<|==) [\d.]+", "", text)
    text = re.sub(r'(state|kind|reason|source|outcome|xid|phase|verb)(=~|=|!=|!~)"[^"]*"', r'\1=~".+"', text)
    return re.split(r" (?:<|and on \([^)]*\)|unless) ", text)
