"""The simulated agents of the whole fleet in one process; they push reports over HTTP as real ones do.

The only module of the extender that imports the agent's simulation, together with the audit.
"""

from __future__ import annotations

import asyncio
import os
import signal

from extender.simulation.fleet import SimulatedHost, simulated_hosts
from extender.simulation.product import EXTENDER_URL
from extender.simulation.trace import load_nodes
from node_agent.pace import PaceTimes
from node_agent.report import Device
from node_agent.simulated_description import Description, parse_description
from node_agent.simulated_fleet import FleetTimes, SimulatedFleet
from node_agent.simulated_node import SimulatedNode


def devices_of(host: SimulatedHost) -> tuple[Device, ...]:
    """Return the devices that a node's agent reports at the start, whole GPUs and MIG instances."""
    node = SimulatedNode(_description(host), 0, PaceTimes(), FleetTimes().health, lambda: 0.0)
    return tuple(device for device in node.sweep().devices if device.mig is not None or not device.mig_enabled)


async def run(url: str) -> None:
    """Push reports until told to stop."""
    fleet = SimulatedFleet(
        [_description(host) for host in simulated_hosts(load_nodes())],
        url,
        times=FleetTimes(sweep_s=1.0, pace=PaceTimes(first_s=0.5, backoff_limit_s=1.0)),
    )
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await fleet.start()
    await stopped.wait()
    await fleet.stop()


def _description(host: SimulatedHost) -> Description:
    return parse_description(host.description)


if __name__ == "__main__":
    asyncio.run(run(os.environ[EXTENDER_URL]))
