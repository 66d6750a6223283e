"""The agent's loop: read the GPUs, judge, build the report, hand it to the publisher; every two seconds, for ever.

The loop itself never talks to a driver or to the network: the reader is a child process with a deadline, the publisher
has threads of its own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from node_agent.health import HealthTracker
from node_agent.inventory import Circumstances, Identity, Inventory
from node_agent.publisher import Heard
from node_agent.readings import Attributor, Claims, Reader, Readings
from node_agent.report import Booking, NodeState, Report

LOST_ACCESS_S = 60.0
SHORTEST_REST_S = 0.1
WAIT_SLICE_S = 0.25

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sweep:
    """One turn of the loop: what was read, what was reported, what the books said."""

    readings: Readings
    report: Report
    bookings: tuple[Booking, ...] = ()


class Outlet(Protocol):
    """Where reports go and where the extender's answers come from."""

    def offer(self, report: Report) -> None:
        """Take the newest report."""
        ...

    def heard(self) -> Heard:
        """Return the newest answers."""
        ...


@dataclass(slots=True)
class Parts:
    """What the loop works with; simulated and real agents differ in these alone."""

    reader: Reader
    attributor: Attributor
    claims: Callable[[], Claims]
    outlet: Outlet
    health: HealthTracker = field(default_factory=HealthTracker)
    watchers: tuple[Callable[[Sweep], None], ...] = ()


class NowhereOutlet:
    """For ``--once`` without a URL: the report is printed and goes nowhere."""

    def offer(self, report: Report) -> None:
        """Drop the report."""

    def heard(self) -> Heard:
        """Nothing was ever heard."""
        return Heard()


class Agent:
    """Runs the loop for one node."""

    def __init__(
        self, identity: Identity, parts: Parts, sweep_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._parts = parts
        self._sweep_s = sweep_s
        self._clock = clock
        self._inventory = Inventory(identity)
        self._is_stopping = threading.Event()
        self._had_access = False
        self._lost_access_s: float | None = None

    def step(self) -> Sweep:
        """Do one turn and return it."""
        parts = self._parts
        heard = parts.outlet.heard()
        readings = parts.reader.read()
        # A driver that does not answer says nothing about single devices: what was known of them stands.
        is_fresh = readings.state in {NodeState.OK, NodeState.DEGRADED, NodeState.NO_GPU}
        health = parts.health
        verdicts = health.observe(readings, self._clock(), heard.cordoned) if is_fresh else health.verdicts()
        circumstances = Circumstances(bookings=heard.bookings, verdicts=verdicts, claims=parts.claims())
        report = self._inventory.report(readings, circumstances, parts.attributor.tenant)
        parts.outlet.offer(report)
        sweep = Sweep(readings, report, heard.bookings)
        for watcher in parts.watchers:
            watcher(sweep)
        return sweep

    def run(self) -> bool:
        """Turn until ``stop``; a turn that raises is logged and does not end the loop.

        Return False when the agent wants to be started anew: it had access to the GPUs and lost it, which only a new
        container cures (node-side.md 6, row 12).
        """
        while not self._is_stopping.is_set():
            started_s = self._clock()
            try:
                self._note_access(self.step().readings.state)
            except Exception:
                logger.exception("sweep of node went wrong")
            if self._lost_access_s is not None and self._clock() - self._lost_access_s > LOST_ACCESS_S:
                logger.error("access to the GPUs is lost, ending so that the container is made anew")
                break
            self._rest(started_s)
        self._parts.reader.close()
        return self._is_stopping.is_set()

    def _note_access(self, state: NodeState) -> None:
        if state is NodeState.OK:
            self._had_access, self._lost_access_s = True, None
        elif state is NodeState.NO_ACCESS and self._had_access and self._lost_access_s is None:
            self._lost_access_s = self._clock()

    def _rest(self, started_s: float) -> None:
        """Wait for the next turn; news from the driver shortens the wait, but never below a tenth of a second."""
        self._is_stopping.wait(SHORTEST_REST_S)
        while not self._is_stopping.is_set() and (left_s := started_s + self._sweep_s - self._clock()) > 0:
            if self._parts.reader.wait(min(left_s, WAIT_SLICE_S)):
                return

    def stop(self) -> None:
        """Ask the loop to end; safe from a signal handler."""
        self._is_stopping.set()
