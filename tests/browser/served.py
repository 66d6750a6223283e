"""The product's page behind its real server on loopback, with a fleet of any size in its store."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from typing import TypeVar

import msgspec

from extender.app import Extender, Surroundings, create_app
from extender.clock import SystemClock
from extender.holdings import PodIdentity
from extender.serving import server_for
from extender.settings import Settings
from node_agent.health import HealthTimes
from node_agent.pace import PaceTimes
from node_agent.report import Device, Health
from node_agent.simulated_description import parse_description
from node_agent.simulated_node import SimulatedNode
from tests.support.builders import bound, node_facts, report
from tests.support.kube import FakeKube

DEVICES = 8
PRODUCTS = ("T4", "V100", "A100", "L4", "L40S", "H100", "H200", "B200")
TEAMS = ("vision", "speech", "search", "ads", "robots")
TROUBLE = {"health": Health.OUT, "fault": "XID 79: GPU has fallen off the bus"}
TROUBLED = 50
_START_S = 120.0
Result = TypeVar("Result")


class ServedFleet:
    """An extender in a thread of its own. ``change`` runs a function on its event loop, as a watch would."""

    def __init__(self, fill: Callable[[Extender], None]) -> None:
        self._fill = fill
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="served-fleet", daemon=True)
        self._thread.start()
        assert self._started.wait(_START_S), "the extender did not start"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/"

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        settings = Settings(port=0, stale_after_s=3600, reports_wait_s=0)
        self.app = create_app(settings, Surroundings(FakeKube(), None, SystemClock(), may_act=lambda: False))
        self.app.node_handler().on_synced()
        self.app.pod_handler().on_synced()
        self._fill(self.app)
        self._server = server_for(self.app, settings)
        serving = asyncio.create_task(self._server.serve())
        while not self._server.started:
            await asyncio.sleep(0.01)
        self._port: int = self._server.servers[0].sockets[0].getsockname()[1]
        self._started.set()
        await serving

    def change(self, step: Callable[[Extender], Result]) -> Result:
        """Run ``step`` where the state may be changed, and return what it returns."""
        done: Future[Result] = Future()

        def run() -> None:
            try:
                done.set_result(step(self.app))
            except BaseException as error:  # noqa: BLE001 - told to the caller's thread
                done.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return done.result(_START_S)

    def stop(self) -> None:
        """End the server."""
        self._server.should_exit = True
        self._thread.join(30)


def fill_fleet(app: Extender, nodes: int) -> None:
    """Let ``nodes`` nodes of eight devices of eight products report, half full, one in a hundred out."""
    for number in range(nodes):
        name = f"node-{number:04d}"
        held = node_devices(name, number)
        app.services.store.set_node(node_facts(name))
        app.services.store.apply_report(report(name, *held), app.services.clock.now())
        for slot in range(0, DEVICES, 2):
            hold(app, name, held[slot], f"job-{number}-{slot}", TEAMS[number % len(TEAMS)])


def node_devices(node: str, number: int) -> tuple[Device, ...]:
    """Return the devices that a node reports."""
    return tuple(
        msgspec.structs.replace(
            device,
            uuid=f"GPU-{node}-{slot}",
            utilisation=(number * 7 + slot * 13) % 100 / 100,
            temperature_celsius=40 + slot,
            **(TROUBLE if (number * DEVICES + slot) % 100 == TROUBLED else {}),
        )
        for slot, device in enumerate(_devices_of(PRODUCTS[number % len(PRODUCTS)]))
    )


def hold(app: Extender, node: str, device: Device, name: str, namespace: str) -> None:
    """Let a pod hold part of a device."""
    who = PodIdentity(f"uid-{namespace}-{name}", namespace, name)
    app.services.store.set_pod(bound(name, device.uuid, device.total_mib // 3, 400, node=node, pod=who))


@cache
def _devices_of(product: str) -> tuple[Device, ...]:
    description = parse_description({"node": "any", "devices": [{"product": product, "count": DEVICES}]})
    return SimulatedNode(description, 0, PaceTimes(), HealthTimes(), lambda: 0.0).sweep().devices
