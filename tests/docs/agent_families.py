"""The agent's metric families, asked of its exporter."""

from __future__ import annotations

from prometheus_client.core import Metric

from node_agent.agent import Sweep
from node_agent.exporter import SweepCollector
from node_agent.publisher import Tally
from node_agent.readings import CallError, Counters, DeviceReading, Readings, XidEvent
from node_agent.report import Booking, Device, Health, Report, Usage

_BOOKING = Booking(
    pod_uid="u", namespace="team", name="train", container="c", uuid="GPU-a", memory_mib=1000, compute_milli=250
)
_USAGE = Usage(pod_uid="u", uuid="GPU-a", memory_mib=2000, sm_ratio=0.5)


def agent_families() -> list[tuple[str, str, tuple[str, ...], str]]:
    """Return (name to query, type, labels, meaning) of each family, in the order of the page."""
    return [(_name(each), each.type, _labels(each), each.documentation) for each in _collected()]


def _collected() -> list[Metric]:
    tally = Tally()
    tally.outcomes["ok"] += 1
    collector = SweepCollector(tally)
    collector.take(_sweep())
    return list(collector.collect())


def _sweep() -> Sweep:
    device = Device(
        uuid="GPU-a", index=0, name="T4", total_mib=1000, reserved_mib=10, used_mib=20, foreign_mib=5,
        power_watts=70.0, power_limit_watts=70.0, temperature_celsius=40, health=Health.HEALTHY,
    )  # fmt: skip
    counters = Counters(energy_mj=1, ecc_corrected_volatile=0, ecc_uncorrected_volatile=0, clocks_event_reasons=0)
    reading = DeviceReading(uuid="GPU-a", index=0, utilisation=0.5, sm_active=0.5, counters=counters)
    readings = Readings(
        devices=(reading,),
        events=(XidEvent(uuid="GPU-a", xid=79),),
        errors=(CallError(call="nvmlDeviceGetName", code=15, count=1),),
    )
    report = Report(version=1, node="n", agent_run="r", sequence=1, devices=(device,), usage=(_USAGE,))
    return Sweep(readings, report, (_BOOKING,))


def _name(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def _labels(family: Metric) -> tuple[str, ...]:
    return tuple(getattr(family, "_labelnames", ()))
