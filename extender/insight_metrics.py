"""What explaining costs and finds, as metrics: lost explanations, pod events, holders that stand out."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from extender import metric_families as families
from extender.insight import Insight


class InsightCollector(Collector):
    """Reads the counts of one ``Insight`` when they are scraped."""

    def __init__(self, insight: Insight) -> None:
        self._insight = insight

    def collect(self) -> Iterable[Metric]:
        """Yield the families as they are now."""
        lost, events, holders = self._families()
        for cause, count in dict(self._insight.history.lost).items():
            lost.add_metric([cause], count)
        for outcome, count in self._insight.event_outcomes.items():
            events.add_metric([outcome], count)
        idle, over = self._insight.usage.outstanding()
        holders.add_metric(["idle"], idle)
        holders.add_metric(["over"], over)
        return lost, events, holders

    def describe(self) -> Iterable[Metric]:
        """Return the families without values."""
        return self._families()

    @staticmethod
    def _families() -> tuple[CounterMetricFamily, CounterMetricFamily, GaugeMetricFamily]:
        lost, events, holders = families.EXPLANATIONS_LOST, families.POD_EVENTS, families.HOLDERS
        return (
            CounterMetricFamily(lost.name, lost.words, labels=lost.labels),
            CounterMetricFamily(events.name, events.words, labels=events.labels),
            GaugeMetricFamily(holders.name, holders.words, labels=holders.labels),
        )
