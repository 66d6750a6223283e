"""What goes on outside decisions, for Prometheus: devices in trouble with the pods on them, and how watches fare.

The one place where single pods are labels: those on a device in trouble are named, within a bound, because somebody
has to look after each of them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from extender.alarms import Alarms
from extender.reflection import ReflectorStats
from extender.store import ClusterStore
from extender.trouble import REASONS, pods_on

MOST_PODS = 1000

Stats = Callable[[], Mapping[str, ReflectorStats]]
"""How each reflector fares, by the plural of what it watches."""

_COUNTED = {
    "lists": "Lists that were begun",
    "watches": "Watches that were begun",
    "events": "Objects that watches set or deleted",
    "skips": "Objects that could not be decoded",
    "gone": "Answers 410: the version to watch from is too old",
    "errors": "Everything else that ended a list or a watch early",
}


class TroubleCollector(Collector):
    """Devices in trouble by kind, and one series for each pod on them."""

    def __init__(self, store: ClusterStore, alarms: Alarms) -> None:
        self._store = store
        self._alarms = alarms

    def collect(self) -> Iterable[Metric]:
        """Yield the gauges as they are now."""
        devices, pods = self.describe()
        assert isinstance(devices, GaugeMetricFamily)
        assert isinstance(pods, GaugeMetricFamily)
        troubles = self._alarms.troubles()
        counts = Counter(trouble.kind for trouble in troubles.values())
        for kind in REASONS:
            devices.add_metric([str(kind)], counts[kind])
        named = ((place, trouble, pod) for place, trouble in troubles.items() for pod in pods_on(self._store, place))
        for (place, trouble, pod), _ in zip(named, range(MOST_PODS), strict=False):
            pods.add_metric([pod.namespace, pod.name, place.node, place.uuid, str(trouble.kind)], 1)
        yield devices
        yield pods

    def describe(self) -> tuple[Metric, ...]:
        """Return the families without values."""
        return (
            GaugeMetricFamily("tangram_extender_devices_in_trouble", "Devices in trouble by kind", labels=["kind"]),
            GaugeMetricFamily(
                "tangram_extender_pods_on_devices_in_trouble",
                "Pods that hold a share of a device in trouble; at most a thousand are named",
                labels=["namespace", "pod", "node", "uuid", "kind"],
            ),
        )


class ReflectorCollector(Collector):
    """How list and watch fare, by the plural of what is watched."""

    def __init__(self, stats: Stats, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._stats = stats
        self._monotonic = monotonic

    def collect(self) -> Iterable[Metric]:
        """Yield counters and the age of the last contact as they are now."""
        known, now = self._stats(), self._monotonic()
        for name, words in _COUNTED.items():
            counter = CounterMetricFamily(_name(name), words, labels=["kind"])
            for kind, stats in known.items():
                counter.add_metric([kind], getattr(stats, name))
            yield counter
        age = GaugeMetricFamily(_name("silence_seconds"), "Time since the API server was heard last", labels=["kind"])
        for kind, stats in known.items():
            if stats.last_contact is not None:
                age.add_metric([kind], stats.age_s(now))
        yield age

    def describe(self) -> Iterable[Metric]:
        """Yield the families without reading anything."""
        for name, words in _COUNTED.items():
            yield CounterMetricFamily(_name(name), words, labels=["kind"])
        yield GaugeMetricFamily(_name("silence_seconds"), "Time since the API server was heard last", labels=["kind"])


def _name(of: str) -> str:
    return f"tangram_extender_reflector_{of}"
