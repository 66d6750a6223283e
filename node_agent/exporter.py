"""The agent's metrics on a port of their own: names and labels of node-side.md 4.3, rendered from the newest sweep.

A value that is not known has no series, never a zero; series of devices and pods that are gone are gone with them,
because every scrape is built anew.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from node_agent.agent import Sweep
from node_agent.metrics_server import TlsFiles, start_metrics_server
from node_agent.overuse import Share, shares
from node_agent.publisher import Tally
from node_agent.readings import Counters, DeviceReading
from node_agent.report import Device, Health, NodeState
from node_agent.xid_targets import xid_targets

MIB = 1024 * 1024
_DEVICE = ("node", "gpu_uuid", "gpu_index", "mig_uuid", "mig_profile")
_POD = ("node", "namespace", "pod", "gpu_uuid")

_THROTTLES = {
    0x4: "software_power_cap",
    0x8: "hardware_slowdown",
    0x20: "software_thermal",
    0x40: "hardware_thermal",
    0x80: "power_brake",
}

_REPAIRS: tuple[tuple[str, str, Callable[[Counters], float | None]], ...] = (
    ("tangram_gpu_recovery_action", "What the driver asks for, 0 for nothing", lambda each: each.recovery_action),
    (
        "tangram_gpu_correctable_remapped_rows",
        "Rows remapped after errors that could be corrected",
        lambda each: each.remapped_correctable,
    ),
    (
        "tangram_gpu_uncorrectable_remapped_rows",
        "Rows remapped after errors that could not be corrected",
        lambda each: each.remapped_uncorrectable,
    ),
    ("tangram_gpu_row_remap_pending", "1 where a row remap waits for a reset", lambda each: each.remap_pending),
    ("tangram_gpu_row_remap_failed", "1 where a row could not be remapped", lambda each: each.remap_failed),
    ("tangram_gpu_retired_pages", "Pages of memory out of use", lambda each: each.retired_pages),
    ("tangram_gpu_page_retirement_pending", "1 where one waits for a reset", lambda each: each.retired_pending),
)
"""Recovery actions are those of NVML field 230: ``health_rules.RECOVERY_ACTIONS`` names them."""


class SweepCollector(Collector):
    """Turns the newest sweep into metrics at every scrape."""

    def __init__(self, tally: Tally | None = None) -> None:
        self._lock = threading.Lock()
        self._sweep: Sweep | None = None
        self._seen_at_s = 0.0
        self._errors: Counter[tuple[str, int]] = Counter()
        self._xids: Counter[tuple[str, int]] = Counter()
        self._last_xid: dict[str, float] = {}
        self._tally = tally
        self.durations = Histogram(
            "tangram_agent_sample_duration_seconds",
            "Time that one sweep over the GPUs took",
            buckets=(0.005, 0.02, 0.1, 0.5, 2, 10),
            registry=None,
        )

    def take(self, sweep: Sweep) -> None:
        """Remember a sweep; counters go on over the agent's life."""
        with self._lock:
            self._sweep, self._seen_at_s = sweep, time.monotonic()
            for error in sweep.readings.errors:
                self._errors[error.call, error.code] += error.count
            self._count_xids(sweep)
        if sweep.readings.age_s == 0:
            self.durations.observe(sweep.readings.duration_s)

    def _count_xids(self, sweep: Sweep) -> None:
        readings = {device.uuid: device for device in sweep.readings.devices}
        for event in sweep.readings.events:
            for uuid in xid_targets(event, readings):
                self._xids[uuid, event.xid] += 1
                self._last_xid[uuid] = time.time()
        present = {device.uuid for device in sweep.report.devices}
        for key in [key for key in self._xids if key[0] not in present]:
            del self._xids[key]
        for uuid in self._last_xid.keys() - present:
            del self._last_xid[uuid]

    def collect(self) -> Iterable[Metric]:
        """Build all series of this moment."""
        with self._lock:
            sweep, age_s = self._sweep, time.monotonic() - self._seen_at_s
        yield from self.durations.collect()
        yield from self._pushes()
        if sweep is None:
            return
        yield _single("tangram_agent_sample_age_seconds", "Age of the newest sweep", sweep.readings.age_s + age_s)
        yield self._call_errors()
        yield _node_state(sweep)
        yield from self._device_metrics(sweep)
        yield from _pod_metrics(sweep)

    def _pushes(self) -> Iterator[Metric]:
        if self._tally is None:
            return
        family = CounterMetricFamily("tangram_agent_pushes", "Reports pushed, by outcome", labels=["outcome"])
        for outcome, count in list(self._tally.outcomes.items()):
            family.add_metric([outcome], count)
        yield family

    def _call_errors(self) -> Metric:
        family = CounterMetricFamily(
            "tangram_agent_nvml_errors", "NVML calls that ended badly", labels=["code", "call"]
        )
        for (call, code), count in self._errors.items():
            family.add_metric([str(code), call], count)
        return family

    def _device_metrics(self, sweep: Sweep) -> Iterator[Metric]:
        node = sweep.report.node
        yield _info(sweep)
        for name, words, values in _device_values(sweep.report.devices):
            family = GaugeMetricFamily(name, words, labels=_DEVICE)
            for device, value in values:
                if value is not None:
                    family.add_metric(_labels(node, device), value)
            yield family
        yield _health(sweep)
        by_uuid = {device.uuid: device for device in sweep.report.devices}
        yield from _reading_metrics(node, sweep.readings.devices, by_uuid)
        yield from self._xid_metrics(node, by_uuid)

    def _xid_metrics(self, node: str, by_uuid: dict[str, Device]) -> Iterator[Metric]:
        counts = CounterMetricFamily("tangram_gpu_xid_errors", "XIDs announced by the driver", labels=[*_DEVICE, "xid"])
        for (uuid, xid), count in self._xids.items():
            if uuid in by_uuid:
                counts.add_metric([*_labels(node, by_uuid[uuid]), str(xid)], count)
        yield counts
        last = GaugeMetricFamily("tangram_gpu_last_xid_timestamp_seconds", "When the last XID came", labels=_DEVICE)
        for uuid, at_s in self._last_xid.items():
            if uuid in by_uuid:
                last.add_metric(_labels(node, by_uuid[uuid]), at_s)
        yield last


def start_exporter(
    collector: SweepCollector, host: str, port: int, files: TlsFiles | None = None
) -> tuple[WSGIServer, threading.Thread]:
    """Serve the metrics; raise OSError where the port is taken or a certificate cannot be read."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return start_metrics_server(registry, host, port, files)


def _labels(node: str, device: Device) -> list[str]:
    index = "" if device.index is None else str(device.index)
    if device.mig is None:
        return [node, device.uuid, index, "", ""]
    return [node, device.mig.parent_uuid, index, device.uuid, device.mig.profile]


def _node_state(sweep: Sweep) -> Metric:
    family = GaugeMetricFamily("tangram_agent_node_state", "1 for the state the node is in", labels=["node", "state"])
    for state in NodeState:
        family.add_metric([sweep.report.node, state], float(sweep.report.state is state))
    return family


def _single(name: str, words: str, value: float) -> Metric:
    family = GaugeMetricFamily(name, words)
    family.add_metric([], value)
    return family


DeviceValues = list[tuple[Device, float | None]]


def _device_values(devices: tuple[Device, ...]) -> Iterator[tuple[str, str, DeviceValues]]:
    sized = [device for device in devices if device.total_mib]
    yield "tangram_gpu_memory_total_bytes", "Memory", [(each, each.total_mib * MIB) for each in sized]
    yield "tangram_gpu_memory_reserved_bytes", "Kept by the driver", [(each, each.reserved_mib * MIB) for each in sized]
    yield (
        "tangram_gpu_memory_used_bytes",
        "In use, without what the driver keeps",
        [(each, None if each.used_mib is None else each.used_mib * MIB) for each in devices],
    )
    yield (
        "tangram_gpu_memory_foreign_bytes",
        "Held by no pod of ours",
        [(each, each.foreign_mib * MIB) for each in sized],
    )
    yield "tangram_gpu_power_watts", "Power drawn", [(each, each.power_watts) for each in devices]
    yield "tangram_gpu_power_limit_watts", "Power limit in force", [(each, each.power_limit_watts) for each in devices]
    yield "tangram_gpu_temperature_celsius", "Temperature", [(each, each.temperature_celsius) for each in devices]


def _info(sweep: Sweep) -> Metric:
    labels = ["product", "architecture", "compute_capability", "driver", "cuda", "owner", "mode"]
    family = GaugeMetricFamily("tangram_gpu_info", "What the device is", labels=[*_DEVICE, *labels])
    for device in sweep.report.devices:
        capability = ".".join(map(str, device.compute_capability or ()))
        architecture = "" if device.architecture is None else str(device.architecture)
        words = [
            device.name,
            architecture,
            capability,
            sweep.report.driver,
            sweep.report.cuda,
            device.owner,
            device.mode,
        ]
        family.add_metric([*_labels(sweep.report.node, device), *words], 1)
    return family


def _health(sweep: Sweep) -> Metric:
    family = GaugeMetricFamily("tangram_gpu_health", "1 for the state the device is in", labels=[*_DEVICE, "state"])
    for device in sweep.report.devices:
        for state in Health:
            family.add_metric([*_labels(sweep.report.node, device), state], float(device.health is state))
    return family


def _reading_metrics(node: str, readings: Iterable[DeviceReading], by_uuid: dict[str, Device]) -> Iterator[Metric]:
    known = [(each, _labels(node, by_uuid[each.uuid])) for each in readings if each.uuid in by_uuid and not each.lost]
    busy = GaugeMetricFamily("tangram_gpu_utilization_ratio", "Time with a kernel running", labels=_DEVICE)
    active = GaugeMetricFamily("tangram_gpu_sm_active_ratio", "SMs with a warp, from GPM", labels=_DEVICE)
    energy = CounterMetricFamily("tangram_gpu_energy_joules", "Energy since driver load", labels=_DEVICE)
    errors = CounterMetricFamily("tangram_gpu_ecc_errors", "ECC errors since driver load", labels=[*_DEVICE, "type"])
    throttled = GaugeMetricFamily("tangram_gpu_throttled", "1 where clocks are held down", labels=[*_DEVICE, "reason"])
    repairs = [(GaugeMetricFamily(name, words, labels=_DEVICE), value) for name, words, value in _REPAIRS]
    for reading, labels in known:
        counters = reading.counters
        _add(busy, labels, reading.utilisation)
        _add(active, labels, reading.sm_active)
        for instance in reading.mig_devices:
            if instance.uuid in by_uuid:
                _add(active, _labels(node, by_uuid[instance.uuid]), instance.sm_active)
        _add(energy, labels, None if counters.energy_mj is None else counters.energy_mj / 1000)
        _add(errors, [*labels, "corrected"], counters.ecc_corrected_volatile)
        _add(errors, [*labels, "uncorrected"], counters.ecc_uncorrected_volatile)
        if counters.clocks_event_reasons is not None:
            for bit, reason in _THROTTLES.items():
                throttled.add_metric([*labels, reason], float(bool(counters.clocks_event_reasons & bit)))
        for family, value in repairs:
            _add(family, labels, value(counters))
    yield from (busy, active, energy, errors, throttled, *(family for family, _ in repairs))


def _add(family: GaugeMetricFamily | CounterMetricFamily, labels: list[str], value: float | None) -> None:
    if value is not None:
        family.add_metric(labels, value)


def _pod_metrics(sweep: Sweep) -> Iterator[Metric]:
    node, found = sweep.report.node, shares(sweep.bookings, sweep.report.usage)
    sharers = Counter(share.uuid for share in found)
    families: dict[str, tuple[str, Callable[[Share], float | None]]] = {
        "tangram_process_gpu_memory_bytes": ("Memory that the pod uses", lambda each: each.used_mib * MIB),
        "tangram_process_gpu_sm_ratio": ("SM time that the pod uses", lambda each: each.used_ratio),
        "tangram_booked_gpu_memory_bytes": ("Memory that the pod booked", lambda each: each.booked_mib * MIB),
        "tangram_booked_gpu_sm_ratio": ("Share of the SMs that the pod booked", lambda each: each.booked_ratio),
        "tangram_gpu_memory_overuse_bytes": ("Memory used beyond the booking", _over_bytes),
        "tangram_gpu_sm_overuse_ratio": (
            "SM time used beyond the booking, on shared devices",
            lambda each: _over_ratio(each) if sharers[each.uuid] > 1 else None,
        ),
    }
    for name, (words, value) in families.items():
        family = GaugeMetricFamily(name, words, labels=_POD)
        for share in found:
            _add(family, [node, share.namespace, share.name, share.uuid], value(share))
        yield family


def _over_bytes(share: Share) -> float | None:
    return (share.used_mib - share.booked_mib) * MIB if share.over_memory() else None


def _over_ratio(share: Share) -> float | None:
    return (share.used_ratio or 0.0) - share.booked_ratio if share.over_compute() else None
