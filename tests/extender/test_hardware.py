"""What a report's devices become in the extender: who is out, and in which words."""

import pytest

from extender.hardware import devices_of
from node_agent.report import Device, Health, NodeState, Owner, Report
from scoring import DeviceState


def facts(state=NodeState.OK, **fields):
    device = Device(**{"uuid": "GPU-a", "total_mib": 1000, "compute_capability": (9, 0), **fields})
    return devices_of(Report(version=1, node="n", agent_run="r", sequence=1, state=state, devices=(device,))).get(
        "GPU-a"
    )


@pytest.mark.parametrize(
    "state", [NodeState.STALE, NodeState.NO_DRIVER, NodeState.DRIVER_MISMATCH, NodeState.NO_ACCESS]
)
def test_healthy_device_of_a_driver_that_does_not_serve_is_out(state):
    assert facts(state).state is DeviceState.OUT
    assert state in facts(state).problem


@pytest.mark.parametrize("state", [NodeState.OK, NodeState.DEGRADED])
def test_healthy_device_of_a_driver_that_serves_is_offered(state):
    assert facts(state).state is DeviceState.HEALTHY


def test_the_devices_own_fault_is_named_before_the_drivers():
    assert facts(NodeState.STALE, health=Health.OUT, fault="XID 79").problem == "XID 79"


def test_device_claimed_by_both_sides_is_out():
    assert facts(owner=Owner.CONTRADICTION).state is DeviceState.OUT


def test_split_device_is_not_offered():
    assert facts(mig_enabled=True) is None
