"""A simulated agent on a manual clock that tells an extender of its node, and hears the answer."""

from __future__ import annotations

import msgspec

from node_agent.health import HealthTimes
from node_agent.pace import PaceTimes
from node_agent.report import Answer, Report
from node_agent.simulated_description import Description, DeviceRow, Fault, PluginRow
from node_agent.simulated_node import SimulatedNode
from tests.support.builders import node_facts
from tests.support.harness import Harness

TIMES = HealthTimes()


class Agent:
    """Sweeps and reports when it is told to; what it reads follows the harness's clock."""

    def __init__(self, harness: Harness, description: Description) -> None:
        self._harness = harness
        self.node = SimulatedNode(description, 1, PaceTimes(), TIMES, lambda: 0.5, harness.clock.now)
        harness.store.set_node(node_facts(description.node))

    @property
    def uuids(self) -> list[str]:
        return self.node.uuids()

    async def tell(self) -> Report:
        """Sweep once, report, and take the answer to heart."""
        stream = self.node.streams[0]
        report = msgspec.structs.replace(self.node.sweep(), bookings_generation=stream.generation)
        response = await self._harness.report(report)
        assert response.status_code == 200, response.text
        answer = msgspec.json.decode(response.content, type=Answer)
        self.node.take_answer(0, report, answer, self._harness.clock.now())
        return report

    async def fault(self, fault: Fault) -> Report:
        """Let something happen now, and tell it a moment later."""
        self._harness.clock.advance(1)
        self.node.plant_fault(fault)
        self._harness.clock.advance(1)
        return await self.tell()

    async def later(self, seconds: float) -> Report:
        """Tell what there is after some time."""
        self._harness.clock.advance(seconds)
        return await self.tell()


async def agent(harness: Harness, product: str = "A100", count: int = 1, node: str = "n", **row: object) -> Agent:
    """Return an agent of equal devices that has reported once and knows what is booked."""
    described = Description(node=node, devices=(DeviceRow(product=product, count=count, **row),))  # type: ignore[arg-type]
    made = Agent(harness, described)
    await made.tell()
    return made


async def plugin_agent(harness: Harness, product: str, count: int, node: str = "n", **plugin: object) -> Agent:
    """Return an agent whose devices NVIDIA's device plugin hands out, as ``nvidia.com/gpu`` unless said otherwise."""
    claim = {"resource": "nvidia.com/gpu", "devices": tuple(range(count)), **plugin}
    described = Description(
        node=node,
        devices=(DeviceRow(product=product, count=count),),
        plugin=(PluginRow(**claim),),  # type: ignore[arg-type]
    )
    made = Agent(harness, described)
    await made.tell()
    return made
