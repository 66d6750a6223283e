"""The whole agent: stub driver, real child process, real HTTP; and the command around it."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from node_agent.__main__ import main
from node_agent.agent import Agent, Parts
from node_agent.attribution import ProcAttributor
from node_agent.endpoint import Credentials, Endpoint
from node_agent.health import HealthTimes, HealthTracker
from node_agent.inventory import Identity
from node_agent.pace import PaceTimes
from node_agent.publisher import Heard, Publisher
from node_agent.readings import Claims, DeviceReading, Readings, XidEvent
from node_agent.report import Health, NodeState, Report
from node_agent.supervisor import Supervisor, SupervisorTimes
from tests.node_agent.receiver import Receiver
from tests.nvml.conftest import driver, stub_library  # noqa: F401 - fixtures


class FixedReader:
    """Hands out the readings it was given, the last one for ever."""

    def __init__(self, *readings):
        self.readings = list(readings)
        self.closed = False

    def read(self):
        reading = self.readings[0] if len(self.readings) == 1 else self.readings.pop(0)
        if isinstance(reading, Exception):
            raise reading
        return reading

    def wait(self, _):
        return True

    def close(self):
        self.closed = True


class Outlet:
    def __init__(self):
        self.reports: list[Report] = []
        self.answer = Heard()

    def offer(self, report):
        self.reports.append(report)

    def heard(self):
        return self.answer


class Nobody:
    def tenant(self, _):
        return None


GOOD = Readings(devices=(DeviceReading(uuid="GPU-a", total_mib=1000),))


def agent_of(reader, clock=time.monotonic):
    outlet = Outlet()
    return Agent(Identity("n", "r"), Parts(reader, Nobody(), Claims, outlet), 0.01, clock), outlet


class TestLoop:
    def test_cordons_of_the_extender_take_a_device_out(self):
        agent, outlet = agent_of(FixedReader(GOOD))
        outlet.answer = Heard(cordoned=frozenset({"GPU-a"}))
        assert agent.step().report.devices[0].health is Health.CORDONED

    def test_stale_driver_condemns_no_device(self):
        stale = Readings(state=NodeState.STALE, devices=GOOD.devices)
        agent, _ = agent_of(FixedReader(GOOD, stale, stale))
        states = [agent.step().report for _ in range(3)]
        assert [each.state for each in states] == [NodeState.OK, NodeState.STALE, NodeState.STALE]
        assert {each.devices[0].health for each in states} == {Health.HEALTHY}

    def test_driver_that_is_gone_leaves_its_devices_reported_as_lost(self):
        agent, _ = agent_of(FixedReader(GOOD, Readings(state=NodeState.NO_DRIVER, message="gone")))
        agent.step()
        report = agent.step().report
        assert (report.state, report.devices[0].health) == (NodeState.NO_DRIVER, Health.LOST)

    def test_last_gpu_that_falls_off_takes_its_xid_along_and_returns_through_probation(self):
        event = (XidEvent(uuid="GPU-a", xid=79),)
        agent, _ = agent_of(FixedReader(GOOD, Readings(state=NodeState.NO_GPU, events=event), GOOD))
        agent.step()
        lost = agent.step().report.devices[0]
        assert lost.health is Health.LOST
        assert "XID 79" in lost.fault
        assert agent.step().report.devices[0].health is Health.PROBATION

    def test_turn_that_raises_does_not_end_the_loop(self, caplog):
        reader = FixedReader(RuntimeError("unforeseen"), GOOD)
        agent, outlet = agent_of(reader)
        thread = threading.Thread(target=agent.run)
        thread.start()
        end_s = time.monotonic() + 5
        while not outlet.reports and time.monotonic() < end_s:
            time.sleep(0.01)
        agent.stop()
        thread.join(5)
        assert outlet.reports
        assert reader.closed
        assert "unforeseen" in caplog.text

    def test_access_lost_for_a_minute_ends_the_agent_for_a_restart(self):
        times = iter(range(0, 10_000, 20))
        lost = Readings(state=NodeState.NO_ACCESS, message="unknown error")
        agent, _ = agent_of(FixedReader(GOOD, lost), clock=lambda: float(next(times)))
        assert agent.run() is False


@pytest.fixture
def running(driver, tmp_path):  # noqa: F811
    """A whole agent on the stub driver, pushing to a receiver; health rests are short."""
    driver.set(count=8)
    with Receiver() as receiver:
        publisher = Publisher(
            [Endpoint.parse(receiver.url)], Credentials(), PaceTimes(gap_s=0.2, first_s=0.01), timeout_s=2.0
        )
        supervisor = Supervisor(SupervisorTimes(probe_s=0.1), environ=driver.environ())
        health = HealthTracker(HealthTimes(probation_s=0.3))
        parts = Parts(supervisor, ProcAttributor(tmp_path), Claims, publisher, health)
        agent = Agent(Identity("n", "r"), parts, 0.5)
        thread = threading.Thread(target=agent.run)
        publisher.start()
        thread.start()
        try:
            assert receiver.wait_for(lambda: any(len(each.devices) == 8 for each in receiver.reports), 10)
            yield driver, receiver
        finally:
            agent.stop()
            thread.join(5)
            publisher.stop()


class TestEndToEnd:
    def test_xid_79_is_reported_within_two_seconds_and_the_reset_brings_the_device_back(self, running):
        driver, receiver = running  # noqa: F811
        driver.device(3, energy_mj=1000)
        driver.announce(3, 79)
        assert receiver.wait_for(lambda: receiver.reports[-1].devices[3].health is Health.OUT, 2.0)
        assert receiver.reports[-1].devices[3].fault == "XID 79: GPU has fallen off the bus"
        assert [each.health for each in receiver.reports[-1].devices].count(Health.HEALTHY) == 7
        driver.device(3, all=15)
        assert receiver.wait_for(lambda: receiver.reports[-1].devices[3].health is Health.LOST, 3.0)
        driver.device(3, all=None)
        assert receiver.wait_for(lambda: receiver.reports[-1].devices[3].health is Health.PROBATION, 3.0)
        assert receiver.wait_for(lambda: receiver.reports[-1].devices[3].health is Health.HEALTHY, 3.0)

    def test_foreign_memory_is_reported_within_two_seconds(self, running):
        driver, receiver = running  # noqa: F811
        driver.device(5, compute="4242:4096", used_mib=4096)
        assert receiver.wait_for(lambda: receiver.reports[-1].devices[5].foreign_mib == 4096, 2.0)


class TestCommand:
    def test_once_prints_a_table_of_a_simulated_node(self, tmp_path, capsys):
        path = tmp_path / "node.yaml"
        path.write_text("{node: gpu-1, devices: [{product: A100, mig: [3g.40gb]}, {product: T4, count: 2}]}")
        assert main(["--once", "--simulate", str(path)]) == 0
        printed = capsys.readouterr().out
        assert printed.startswith("node gpu-1: ok\n")
        for words in ("Tesla T4", "mig 3g.40gb", "split", "4 devices"):
            assert words in printed

    def test_once_prints_json(self, tmp_path, capsys):
        path = tmp_path / "node.yaml"
        path.write_text("{node: gpu-1, devices: [{product: T4}]}")
        assert main(["--once", "--simulate", str(path), "-o", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["devices"][0]["name"] == "Tesla T4"

    def test_once_on_the_stub_driver_shows_eight_devices(self, driver):  # noqa: F811
        driver.set(count=8)
        done = self.once(driver.environ())
        assert done.returncode == 0
        assert "8 devices" in done.stdout

    def test_once_without_a_gpu_says_so_and_fails(self, driver, tmp_path):  # noqa: F811
        done = self.once({**driver.environ(), "LD_LIBRARY_PATH": str(tmp_path)})
        assert done.returncode == 3
        assert "no usable GPU on this node: libnvidia-ml.so.1 not found" in done.stderr

    @pytest.mark.parametrize(
        ("environ", "words"),
        [
            pytest.param({"TANGRAM_AGENT_URLS": "extender"}, "must look like", id="url"),
            pytest.param({"TANGRAM_AGENT_SIMULATE": "/nonexistent"}, "/nonexistent", id="description"),
            pytest.param({"TANGRAM_AGENT_MPS_DEVICES": "0"}, "GPU-<uuid>", id="mps"),
            pytest.param({"TANGRAM_AGENT_NOD": "x"}, "no such setting", id="name"),
        ],
    )
    def test_settings_that_cannot_be_used_are_told(self, environ, words, monkeypatch, capsys):
        for key, value in environ.items():
            monkeypatch.setenv(key, value)
        assert main(["--once"]) == 2
        assert words in capsys.readouterr().err

    @staticmethod
    def once(environ):
        command = [sys.executable, "-m", "node_agent", "--once"]
        return subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True, timeout=60)
