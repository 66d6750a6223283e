"""A reader over ``simulate``: the described node, seen through a clock."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

from node_agent.readings import Readings, Tenant
from node_agent.report import Booking, NodeState
from node_agent.simulated import NOTHING_CHANGED, simulate
from node_agent.simulated_description import Description


class SimulatedReader:
    """A reader over ``simulate``: it has a clock, hears of bookings, and tells whose its made-up processes are."""

    def __init__(
        self, description: Description, clock: Callable[[], float], bookings: Callable[[], Sequence[Booking]]
    ) -> None:
        self.description = description
        self.interventions = NOTHING_CHANGED
        self._clock = clock
        self._bookings = bookings
        self._started_s = clock()
        self._since_s = -math.inf
        self._tenants: Mapping[int, Tenant] = {}

    def elapsed_s(self) -> float:
        """Return the seconds since the simulation began."""
        return self._clock() - self._started_s

    def read(self) -> Readings:
        """Return the sweep of this moment."""
        now_s = self.elapsed_s()
        scene = simulate(
            self.description, now_s, self._bookings(), since_s=self._since_s, interventions=self.interventions
        )
        if scene.readings.state is not NodeState.STALE:
            self._since_s = now_s
        self._tenants = scene.tenants
        return scene.readings

    def wait(self, seconds: float) -> bool:
        """Wait; nothing is ever announced between sweeps."""
        time.sleep(seconds)
        return False

    def tenant(self, pid: int) -> Tenant | None:
        """Return whose a made-up process of the last sweep is."""
        return self._tenants.get(pid)

    def close(self) -> None:
        """Nothing is held."""
