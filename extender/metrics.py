"""The extender's counters and histogram in a registry of its own, and the page that Prometheus scrapes.

What each family is, is written down in ``metric_families``. The page has two parts: the registry, small and rendered
on the event loop, where the state may be read; and the fleet, tens of thousands of lines in a large cluster, rendered
by a thread from an immutable snapshot while decisions go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from extender import metric_families as families
from extender.metric_families import Family

REQUEST_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 4.0)
"""All below the scheduler's ``httpTimeout`` of 5 s: what took longer it has given up on."""

FRESH_S = 1.0
"""A page that is younger is served again, so that many scrapers cost no more than one."""

CONFLICTS = frozenset({"NoLongerFits", "BoundElsewhere", "PodReplaced"})
"""Outcomes of a bind that say: the world is not what filter saw."""

Renderer = Callable[[], bytes]
Part = Callable[[], Renderer]
"""Called on the event loop, where it may read state but not linger; what it returns renders in a thread."""


class Metrics:
    """The counters and the histogram, each under the name by which the code knows it, and the page."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self.verb_seconds = Histogram(
            families.REQUEST_SECONDS.name,
            families.REQUEST_SECONDS.words,
            families.REQUEST_SECONDS.labels,
            buckets=REQUEST_BUCKETS_S,
            registry=self.registry,
        )
        self.answers = self._counter(families.REQUESTS)
        self.decisions = self._counter(families.DECISIONS)
        self.rejections = self._counter(families.REJECTIONS)
        self.binds = self._counter(families.BINDS)
        self.bind_conflicts = self._counter(families.BIND_CONFLICTS)
        self.reports = self._counter(families.REPORTS)
        self.advertisements = self._counter(families.ADVERTISEMENTS)
        self.wakes = self._counter(families.WAKES)
        self.settled = self._counter(families.SETTLED)
        self._parts: list[Part] = []
        self._page = b""
        self._page_at: float | None = None
        self._turn = asyncio.Lock()

    def _counter(self, family: Family) -> Counter:
        return Counter(family.name, family.words, family.labels, registry=self.registry)

    def add_part(self, part: Part) -> None:
        """Let a part stand on the page, behind the registry."""
        self._parts.append(part)

    def count_bind(self, outcome: str) -> None:
        """Count a bind by how it ended."""
        self.binds.labels(outcome).inc()
        if outcome in CONFLICTS:
            self.bind_conflicts.labels(outcome).inc()

    async def page(self, now: float) -> bytes:
        """Return all metrics in Prometheus' text format, not older than ``FRESH_S``; call it on the event loop."""
        async with self._turn:
            if self._page_at is None or now - self._page_at >= FRESH_S:
                small, renderers = generate_latest(self.registry), [part() for part in self._parts]
                rest = await asyncio.to_thread(lambda: b"".join([render() for render in renderers]))
                self._page, self._page_at = small + rest, now
            return self._page
