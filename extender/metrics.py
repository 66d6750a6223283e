"""Every metric of the extender, defined once, in a registry of its own.

Labels come from closed sets. What depends on the cluster's state is read at scrape time by ``StateCollector``; series
for single devices are the agents' business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_DECISION_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Metrics:
    """The counters and histograms, each under the name by which the code knows it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self.verb_seconds = Histogram(
            "tangram_extender_verb_seconds",
            "Time to answer kube-scheduler, without the transport",
            ["verb"],
            buckets=_DECISION_BUCKETS,
            registry=self.registry,
        )
        self.answers = self._counter("tangram_extender_answers", "Answers to kube-scheduler", "verb", "outcome")
        self.binds = self._counter("tangram_extender_binds", "Binds by how they ended", "outcome")
        self.reports = self._counter("tangram_extender_reports", "Agent reports by what became of them", "outcome")
        self.advertisements = self._counter(
            "tangram_extender_advertisements", "Writes of node totals by outcome", "outcome"
        )
        self.wakes = self._counter("tangram_extender_wakes", "Node annotations written to wake waiting pods", "outcome")
        self.settled = self._counter("tangram_extender_settled", "Reservations settled by a later read", "outcome")
        self.unreadable = self._counter(
            "tangram_extender_unreadable_pods", "Pods that could not be understood", "source"
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)


class StateCollector(Collector):
    """Gauges of the cluster's state, read when they are scraped.

    ``read`` returns for each gauge name its help text, its label and one value for each label value.
    """

    def __init__(self, read: Callable[[], Mapping[str, tuple[str, str, Mapping[str, float]]]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """Yield the gauges as they are now."""
        for name, (text, label, values) in self._read().items():
            family = GaugeMetricFamily(name, text, labels=[label])
            for value_of_label, value in values.items():
                family.add_metric([value_of_label], value)
            yield family

    def describe(self) -> Iterable[Metric]:
        """Yield nothing: the names are known when they are read, and reading at registration is too early."""
        return ()
