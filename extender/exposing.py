"""Puts the cluster's state on the page of metrics: which part reads what, and where it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from extender.fleet_metrics import FleetText
from extender.insight_metrics import InsightCollector
from extender.pages.waiting import WaitingPods
from extender.reflection import ReflectorStats
from extender.services import Services
from extender.state_metrics import StateCollector, UsageCollector
from extender.store import ClusterStore

REPORTS = "reports"
_ALL = 1_000_000

Stats = Callable[[], Mapping[str, ReflectorStats]]
"""How each reflector fares, by the plural of what it watches."""


def expose_state(services: Services, waiting: WaitingPods, stats: Stats) -> None:
    """Register the state's gauges, GPU hours and the fleet's text."""

    def ages_s() -> dict[str, float]:
        now = time.monotonic()
        heard = {kind: each.last_contact for kind, each in stats().items()}
        ages = {kind: now - at for kind, at in heard.items() if at}
        return {**ages, **_report_age(services.store, services.clock.now())}

    def messages() -> list[str]:
        return [each.message for each in waiting.oldest(_ALL)]

    services.metrics.registry.register(StateCollector(services.store, messages, ages_s))
    services.metrics.registry.register(UsageCollector(services.insight.usage))
    services.metrics.registry.register(InsightCollector(services.insight))
    services.metrics.add_part(FleetText(services.store).part)


def _report_age(store: ClusterStore, now: float) -> dict[str, float]:
    newest = max((record.arrived_at for record in store.nodes() if record.arrived_at is not None), default=None)
    return {} if newest is None else {REPORTS: now - newest}
