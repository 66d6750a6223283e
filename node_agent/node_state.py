"""What a node's driver says of the node as a whole (node-side.md 7, rule 2)."""

from __future__ import annotations

from node_agent.nvml_outcome import GPU_NOT_FOUND, NOT_FOUND, Kind, Outcome
from node_agent.readings import DeviceReading, Readings
from node_agent.report import NodeState


def no_devices(count: Outcome[int]) -> Readings:
    """Return the readings of a node whose driver lists no device."""
    if count.kind is Kind.VALUE or count.code in {NOT_FOUND, GPU_NOT_FOUND}:
        return Readings(state=NodeState.NO_GPU, message="the driver lists no GPU")
    return Readings(state=node_state_of(count), message=count.words())


def node_state_of(outcome: Outcome[object] | Outcome[int] | Outcome[None]) -> NodeState:
    """Return what a failed first question to the driver says about the node (node-side.md 1.3 and 7)."""
    match outcome.code:
        case 18:
            return NodeState.DRIVER_MISMATCH
        case 9 | 12 | 13:
            return NodeState.NO_DRIVER
        case 6 | 28:
            return NodeState.NO_GPU
        case 4 | 17 | 999:
            return NodeState.NO_ACCESS
        case _:
            return NodeState.DEGRADED


def state_of_sweep(devices: list[DeviceReading], problems: list[str]) -> NodeState:
    """Say how the node fares as a whole; with no readable device at all, access is what is missing."""
    if not devices:
        return NodeState.NO_ACCESS
    if problems or any(device.lost or device.problem for device in devices):
        return NodeState.DEGRADED
    return NodeState.OK
