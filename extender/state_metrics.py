"""Gauges of the cluster's state that are few: read on the event loop at the moment of the scrape."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from extender import metric_families as families
from extender.metric_families import Family
from extender.store import ClusterStore
from extender.usage import UsageTracker
from scoring.fleet import NodeState
from scoring.status import Reason

NOT_TRIED = "NotTriedYet"
OTHER = "Other"
"""What stands in the way is none of ours: CPU, taints, affinity, quotas."""

_CODES = {reason.sentence: reason.value for reason in Reason}
_COUNTED = re.compile(r"(\d+) (.+?)(?=, \d+ |\.|$)")

Gauge = tuple[Family, Mapping[str, float]]
"""A family with one label, and one value for each value of the label."""


class StateCollector(Collector):
    """The state's gauges.

    ``messages`` returns what kube-scheduler said last of each waiting pod, empty before it tried; ``ages_s`` returns
    how long ago each source of the state was heard last, without those that never were.
    """

    def __init__(
        self,
        store: ClusterStore,
        messages: Callable[[], Iterable[str]],
        ages_s: Callable[[], Mapping[str, float]],
    ) -> None:
        self._store = store
        self._messages = messages
        self._ages_s = ages_s

    def collect(self) -> Iterable[Metric]:
        """Yield the gauges as they are now."""
        for family, values in self._gauges():
            metric = GaugeMetricFamily(family.name, family.words, labels=family.labels)
            for label, value in values.items():
                metric.add_metric([label], value)
            yield metric

    def describe(self) -> Iterable[Metric]:
        """Yield the names without reading anything: at registration it is too early."""
        return [GaugeMetricFamily(family.name, family.words, labels=family.labels) for family in families.STATE]

    def _gauges(self) -> Iterable[Gauge]:
        yield families.NODES, _node_states(self._store)
        yield families.HOLDINGS, _holdings(self._store)
        yield families.BOOKS_DRIFT, _drift(self._store)
        yield families.SNAPSHOT_AGE, self._ages_s()
        yield families.WAITING, waiting_by_reason(self._messages())


class UsageCollector(Collector):
    """GPU hours by namespace, as the tracker has added them up."""

    def __init__(self, usage: UsageTracker) -> None:
        self._usage = usage

    def collect(self) -> Iterable[Metric]:
        """Yield the counters as they are now."""
        booked, idle = self.describe()
        assert isinstance(booked, CounterMetricFamily)
        assert isinstance(idle, CounterMetricFamily)
        for namespace, hours in self._usage.hours().items():
            booked.add_metric([namespace], hours.booked)
            idle.add_metric([namespace], hours.idle)
        yield from (booked, idle)

    def describe(self) -> tuple[Metric, ...]:
        """Return the families without values."""
        return tuple(CounterMetricFamily(each.name, each.words, labels=each.labels) for each in families.USAGE)


def waiting_by_reason(messages: Iterable[str]) -> dict[str, float]:
    """Return how many pods wait for each reason: the one that refused most nodes, of ours where there is any."""
    counts: Counter[str] = Counter()
    for message, count in Counter(messages).items():
        counts[leading_reason(message)] += count
    return {code: float(count) for code, count in sorted(counts.items())}


@lru_cache(maxsize=4096)
def leading_reason(message: str) -> str:
    """Return the code of our reason that most nodes were refused for, by kube-scheduler's message about a pod."""
    if not message:
        return NOT_TRIED
    found = [(int(count), sentence) for count, sentence in _COUNTED.findall(message)]
    ours = [(count, _CODES[sentence]) for count, sentence in found if sentence in _CODES]
    return max(ours)[1] if ours else OTHER


def _node_states(store: ClusterStore) -> dict[str, float]:
    counts = np.bincount(store.snapshot().node_state, minlength=len(NodeState))
    return {state.name.lower(): float(counts[state]) for state in NodeState if state is not NodeState.EMPTY}


def _holdings(store: ClusterStore) -> dict[str, float]:
    assumed = store.ledger.assumed()
    return {
        "assumed": float(len(assumed)),
        "in_doubt": float(sum(holding.outcome_unknown for holding in assumed)),
        "confirmed": float(len(store.ledger) - len(assumed)),
    }


def _drift(store: ClusterStore) -> dict[str, float]:
    """Return how many devices gave away more than they have, and how many pods hold what nobody recorded."""
    fleet = store.snapshot()
    conflicted = np.flatnonzero(fleet.node_state == NodeState.CONFLICTED).tolist()
    return {
        "overbooked_devices": float(len(store.overbooked())),
        "unexplained_pods": float(sum(len(store.ledger.problems(fleet.names[row])) for row in conflicted)),
    }
