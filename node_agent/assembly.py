"""Puts an agent together from its settings: which reader, who attributes, where reports go, what is exported.

Imports happen where a part is wanted: every module that is not loaded is memory that a GPU node keeps.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from node_agent.agent import NowhereOutlet, Outlet, Parts
from node_agent.health import HealthTimes, HealthTracker
from node_agent.settings import Settings, SettingsError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Build:
    """An agent put together: for which node, from which parts, and what to start and to close around its loop."""

    node: str
    parts: Parts
    starts: tuple[Callable[[], object], ...] = ()
    closes: tuple[Callable[[], object], ...] = ()
    claims_once: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Start what runs beside the loop."""
        for start in self.starts:
            start()

    def close(self) -> None:
        """Close it again, in the opposite order."""
        for close in reversed(self.closes):
            close()


def assemble(settings: Settings) -> Build:
    """Return the agent that the settings ask for; raise SettingsError or ValueError where they cannot be used."""
    outlet = _outlet(settings)
    return _simulated(settings, outlet) if settings.simulate else _real(settings, outlet)


def _outlet(settings: Settings) -> Outlet:
    urls = settings.url_list()
    if not urls:
        return NowhereOutlet()
    from node_agent.endpoint import Credentials, Endpoint
    from node_agent.pace import PaceTimes
    from node_agent.publisher import Publisher

    return Publisher(
        [Endpoint.parse(url) for url in urls],
        Credentials(settings.token_path(), settings.ca_path()),
        PaceTimes(heartbeat_s=settings.heartbeat_s),
        settings.push_timeout_s,
    )


def _simulated(settings: Settings, outlet: Outlet) -> Build:
    from node_agent.simulated import claims_of
    from node_agent.simulated_description import load_descriptions
    from node_agent.simulated_reader import SimulatedReader

    descriptions = load_descriptions(Path(settings.simulate))
    description = next((each for each in descriptions if each.node == settings.node), descriptions[0])
    reader = SimulatedReader(description, time.monotonic, lambda: outlet.heard().bookings)
    claims = claims_of(description)
    parts = Parts(reader, reader, lambda: claims, outlet)
    return _with_outlet(settings, description.node, parts)


def _real(settings: Settings, outlet: Outlet) -> Build:
    from node_agent.attribution import ProcAttributor
    from node_agent.claims import ClaimsKeeper
    from node_agent.health_memory import HealthMemory
    from node_agent.mps import MpsWatch, parse_mps_devices
    from node_agent.supervisor import Supervisor, SupervisorTimes

    try:
        mps = MpsWatch(Path(settings.mps_root), settings.mps_control, parse_mps_devices(settings.mps_devices))
    except ValueError as problem:
        raise SettingsError(f"TANGRAM_AGENT_MPS_DEVICES: {problem}") from problem
    keeper = ClaimsKeeper(settings.pod_resources_socket, mps)
    environ = {**os.environ, "TANGRAM_AGENT_SYSFS_ROOT": settings.sysfs_root}
    supervisor = Supervisor(SupervisorTimes(deadline_s=settings.deadline_s), environ=environ)
    times = HealthTimes(settings.suspect_s, settings.rest_s, settings.probation_s)
    parts = Parts(
        supervisor, ProcAttributor(Path(settings.proc_root)), keeper.claims, outlet, health=HealthTracker(times)
    )
    if settings.health_file:
        memory = HealthMemory(Path(settings.health_file))
        parts.health.recall(memory.load(), time.monotonic())
        parts.watchers = (lambda _: memory.save(parts.health.remember()),)
    built = _with_outlet(settings, settings.node_name(), parts)
    return Build(
        built.node, built.parts, (keeper.start, *built.starts), (keeper.stop, *built.closes), claims_once=keeper.ask
    )


def _with_outlet(settings: Settings, node: str, parts: Parts) -> Build:
    starts: list[Callable[[], object]] = []
    closes: list[Callable[[], object]] = []
    tally = None
    if not isinstance(parts.outlet, NowhereOutlet):
        from node_agent.publisher import Publisher

        assert isinstance(parts.outlet, Publisher)
        tally = parts.outlet.tally
        starts.append(parts.outlet.start)
        closes.append(parts.outlet.stop)
    if settings.metrics_port:
        from node_agent.exporter import SweepCollector, start_exporter
        from node_agent.metrics_server import TlsFiles

        tls = settings.metrics_tls()
        files = TlsFiles(*tls) if tls is not None else None
        collector = SweepCollector(tally)
        parts.watchers = (*parts.watchers, collector.take)
        starts.append(lambda: start_exporter(collector, settings.metrics_host, settings.metrics_port, files))
    return Build(node, parts, tuple(starts), tuple(closes))
