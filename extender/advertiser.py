"""Keeps what nodes advertise of ours as it should be (design section 2), and asserts it again when it vanishes.

Kubelet zeroes extended resources when it takes its node for a new one (kubernetes #126943); the watch shows that, and
the next round writes them again. A node is written only where its totals differ, at most so many nodes a round, and a
node whose write fails waits longer each time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from extender.clock import Clock
from extender.errors import KubeError
from extender.kube import Kube
from extender.metrics import Metrics
from extender.settings import Settings
from extender.store import ClusterStore

_LOG = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Delay:
    until: float
    seconds: float


class Advertiser:
    """Writes node totals. ``may_act`` tells whether this replica holds the lease."""

    def __init__(
        self,
        store: ClusterStore,
        kube: Kube,
        settings: Settings,
        clock: Clock,
        metrics: Metrics,
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store = store
        self._kube = kube
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._may_act = may_act
        self._pending: dict[str, None] = {}
        self._delays: dict[str, _Delay] = {}

    async def run(self) -> None:
        """Do a round every ``advertise_interval_s``, until cancelled."""
        while True:
            await self.round()
            await self._clock.sleep(self._settings.advertise_interval_s)

    async def round(self) -> int:
        """Write the totals of up to ``advertise_per_round`` nodes where they differ; return how many were written."""
        self._pending |= dict.fromkeys(sorted(self._store.take_changed_totals()))
        if not self._may_act():
            return 0
        due = [name for name in self._pending if self._is_due(name)]
        written = 0
        for name in due:
            if written == self._settings.advertise_per_round:
                break
            patch = self._patch(name)
            if patch:
                written += await self._write(name, patch)
            else:
                self._done(name)
        return written

    def _is_due(self, name: str) -> bool:
        delay = self._delays.get(name)
        return delay is None or delay.until <= self._clock.now()

    def _patch(self, name: str) -> dict[str, str | None]:
        """Return the totals that differ from what the node carries. A total of 0 is written only over another one."""
        totals, record = self._store.totals(name), self._store.node(name)
        if totals is None or record is None or record.facts is None:
            return {}
        carried = dict(record.facts.totals)
        prefix = self._settings.key_prefix
        return {prefix + key: str(amount) for key, amount in totals.items() if carried.get(key, 0) != amount}

    async def _write(self, name: str, patch: dict[str, str | None]) -> int:
        try:
            await self._kube.patch_node_status(name, patch)
        except KubeError as error:
            self._metrics.advertisements.labels(error.code).inc()
            _LOG.warning("advertise_failed", node=name, error=str(error))
            self._delay(name)
            return 0
        self._metrics.advertisements.labels("written").inc()
        _LOG.info("advertised", node=name, **{key.rpartition("/")[2].replace("-", "_"): patch[key] for key in patch})
        self._done(name)
        return 1

    def _done(self, name: str) -> None:
        self._pending.pop(name, None)
        self._delays.pop(name, None)

    def _delay(self, name: str) -> None:
        before = self._delays.get(name)
        seconds = self._settings.advertise_interval_s if before is None else before.seconds * 2
        seconds = min(seconds, self._settings.advertise_backoff_max_s)
        self._delays[name] = _Delay(self._clock.now() + seconds, seconds)
