"""The smoke part of the suite on a real GPU, whatever it is; skipped where there is none."""

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
    assert second.duration_s < 1.0
    assert [(each.uuid, each.name, each.total_mib) for each in first.devices] == [
        (each.uuid, each.name, each.total_mib) for each in second.devices
    ]


def test_no_question_ends_in_a_way_the_binding_cannot_read(supervisor):
    assert not [each for each in supervisor.read().errors if each.code == -1]
