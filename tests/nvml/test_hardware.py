"""The smoke part of the suite on a real GPU, whatever it is; skipped where there is none."""

import os
import subprocess
import sys
import time

import pytest

from node_agent.report import NodeState
from node_agent.supervisor import Supervisor, SupervisorTimes

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def supervisor():
    supervisor = Supervisor(SupervisorTimes(patience_s=30.0))
    first = supervisor.read()
    if first.state in {NodeState.NO_DRIVER, NodeState.NO_GPU, NodeState.NO_ACCESS}:
        supervisor.close()
        pytest.skip(f"no usable GPU on this machine: {first.message}")
    yield supervisor
    supervisor.close()


def test_devices_have_identity_size_and_load(supervisor):
    readings = supervisor.read()
    assert readings.driver
    assert readings.cuda
    for device in readings.devices:
        assert device.uuid.startswith("GPU-")
        assert device.name
        assert device.compute_capability >= (3, 0)
        assert device.sm_count is None or 1 <= device.sm_count <= 1000
        if device.total_mib:
            assert device.total_mib - (device.reserved_mib or 0) > 0
            assert 0 <= device.used_mib <= device.total_mib
        assert device.utilisation is None or 0 <= device.utilisation <= 1


def test_second_sweep_is_quick_and_equal_in_what_does_not_change(supervisor):
    first, second = supervisor.read(), supervisor.read()
    assert second.duration_s < 5.0
    assert [(each.uuid, each.name, each.total_mib) for each in first.devices] == [
        (each.uuid, each.name, each.total_mib) for each in second.devices
    ]


def test_no_question_ends_in_a_way_the_binding_cannot_read(supervisor):
    assert not [each for each in supervisor.read().errors if each.code == -1]


def test_sm_activity_is_a_share_where_the_product_has_it(supervisor):
    supervisor.read()
    time.sleep(0.2)  # The driver wants 100 ms between two samples.
    for device in supervisor.read().devices:
        assert device.sm_active is None or 0 <= device.sm_active <= 1
        for instance in device.mig_devices:
            assert instance.sm_active is None or 0 <= instance.sm_active <= 1


def test_instances_of_a_split_device_are_described(supervisor):
    for device in supervisor.read().devices:
        assert device.mig_enabled or not device.mig_devices
        for instance in device.mig_devices:
            assert instance.uuid.startswith("MIG-")
            assert "g." in instance.profile
            assert instance.total_mib is None or instance.total_mib > 0


def test_health_counters_are_plausible(supervisor):
    for device in supervisor.read().devices:
        counters = device.counters
        assert counters.recovery_action is None or 0 <= counters.recovery_action <= 16
        assert counters.fabric_state is None or 0 <= counters.fabric_state <= 3
        assert device.temperature_celsius is None or 0 <= device.temperature_celsius < 130


def test_once_shows_every_device(supervisor):
    command = [sys.executable, "-m", "node_agent", "--once"]
    environ = {**os.environ, "TANGRAM_AGENT_METRICS_PORT": "0"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, env=environ)
    assert done.returncode == 0, done.stderr
    for device in supervisor.read().devices:
        assert device.uuid in done.stdout
