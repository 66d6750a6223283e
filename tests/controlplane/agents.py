"""The simulated node agents beside a control plane: a thread for tests, a program for `make cluster`.

    with Agents(descriptions, extender.url) as agents:
        agents.set_utilisation("gpu-a", uuid, 0.9)

They push reports over HTTP as real agents do, and go on while the extender is down.
"""

import argparse
import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from node_agent.health import HealthTimes
from node_agent.pace import PaceTimes
from node_agent.simulated_builders import mixed_fleet
from node_agent.simulated_description import Description, Fault
from node_agent.simulated_fleet import FleetTimes, SimulatedFleet
from tests.controlplane.api import wait_for

_EAGER = FleetTimes(
    sweep_s=0.5,
    pace=PaceTimes(gap_s=0.2, backoff_first_s=0.1, backoff_limit_s=1.0, first_s=0.2),
    health=HealthTimes(suspect_s=2.0, rest_s=1.0, probation_s=2.0),
)
_CALL_S = 10.0


class Agents:
    """The agents of all described nodes; methods may be called from any thread once it is started."""

    def __init__(self, descriptions: Iterable[Description], url: str) -> None:
        self._fleet = SimulatedFleet(descriptions, url, times=_EAGER)
        self._thread = threading.Thread(target=self._run, name="agents", daemon=True)
        self._started = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._started.wait(_CALL_S):
            message = f"the agents did not start within {_CALL_S:.0f} s"
            raise TimeoutError(message)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(_CALL_S)

    def uuids(self, node: str) -> list[str]:
        """Return the UUIDs of a node's devices."""
        return self._fleet.uuids(node)

    def set_utilisation(self, node: str, uuid: str, value: float | None) -> None:
        """Make a device report this load (0..1) from now on."""
        self._call(lambda: self._fleet.set_utilisation(node, uuid, value))

    def set_foreign(self, node: str, uuid: str, memory_mib: int | None) -> None:
        """Let a process of nobody's pod hold this much memory; None ends it."""
        self._call(lambda: self._fleet.set_foreign(node, uuid, memory_mib))

    def plant_fault(self, node: str, fault: Fault) -> None:
        """Add a fault; its times are counted from now."""
        self._call(lambda: self._fleet.plant_fault(node, fault))

    def silence(self, node: str) -> None:
        """Stop all reports of a node."""
        self._call(lambda: self._fleet.silence(node))

    def restore(self, node: str) -> None:
        """Let a silenced node speak again."""
        self._call(lambda: self._fleet.restore(node))

    def _call(self, action: Callable[[], None]) -> None:
        done = threading.Event()

        def act() -> None:
            action()
            done.set()

        self._loop.call_soon_threadsafe(act)
        wait_for("the agents took note", done.is_set, within_s=_CALL_S)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        await self._fleet.start()
        self._started.set()
        await self._end.wait()
        await self._fleet.stop()


def main() -> None:
    """Run the agents of a mixed fleet until killed: `python -m tests.controlplane.agents URL NODES`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="address of the extender")
    parser.add_argument("nodes", type=int, help="how many nodes")
    arguments = parser.parse_args()

    async def serve() -> None:
        await SimulatedFleet(mixed_fleet(arguments.nodes, swing=0.6), arguments.url).start()
        await asyncio.Event().wait()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve())


if __name__ == "__main__":
    main()
