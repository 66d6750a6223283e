"""The exporter of a node with faults that the simulation does not have: ECC errors, throttling, NVML errors, GPM."""

from __future__ import annotations

import threading
from typing import Self

from node_agent.agent import Sweep
from node_agent.exporter import SweepCollector, start_exporter
from node_agent.readings import CallError, Counters, DeviceReading, Readings, XidEvent
from node_agent.report import Device, Health, Report

UUID = "GPU-sick"
_ALL_THROTTLES = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
_TURN_S = 0.5


def sweep(turn: int) -> Sweep:
    """Return the sweep of a turn; counters grow with the turns."""
    counters = Counters(
        energy_mj=turn * 1000,
        ecc_corrected_volatile=turn,
        ecc_uncorrected_volatile=turn // 4,
        clocks_event_reasons=_ALL_THROTTLES,
        recovery_action=2,
        remap_pending=True,
        remap_failed=True,
        retired_pages=4,
        retired_pending=True,
    )
    reading = DeviceReading(uuid=UUID, index=0, utilisation=1.0, sm_active=0.9, counters=counters)
    device = Device(
        uuid=UUID, index=0, name="NVIDIA H100 80GB HBM3", total_mib=81_559, temperature_celsius=93, health=Health.OUT
    )
    readings = Readings(
        devices=(reading,),
        events=(XidEvent(uuid=UUID, xid=94 if turn == 1 else 48),) if turn in {1, 2} else (),
        errors=(CallError(call="nvmlDeviceGetPowerUsage", code=15, count=1),),
    )
    return Sweep(readings, Report(version=1, node="sick-1", agent_run="r", sequence=turn, devices=(device,)), ())


class SickNode:
    """A context manager: the exporter with a sweep every half second."""

    def __init__(self, port: int) -> None:
        self._collector = SweepCollector()
        self._server, self._thread = start_exporter(self._collector, "127.0.0.1", port)
        self._stopped = threading.Event()
        self._turns = threading.Thread(target=self._turn, daemon=True)

    def __enter__(self) -> Self:
        self._turns.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._turns.join(5)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def _turn(self) -> None:
        turn = 0
        while not self._stopped.wait(_TURN_S):
            turn += 1
            self._collector.take(sweep(turn))
