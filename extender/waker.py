"""Wakes pods that only the extender refused, when room appears that kube-scheduler cannot see (extender-protocol.md 5).

The scheduler retries such pods on cluster events; a report that came back, a device that recovered or foreign memory
that was freed is none. One annotation on one Node is, and wakes them all, so one write serves every waiting pod. A
pod's end is an event by itself; only where we refused somebody shortly before we saw that end may it have been used up.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from extender.clock import Clock
from extender.errors import KubeError
from extender.kube import Kube
from extender.metrics import Metrics
from extender.settings import Settings

_LOG = structlog.get_logger(__name__)

WOKEN_KEY = "capacity-grew"
_POD_END_WINDOW_S = 5.0


class Waker:
    """Collects growth and refusals, and writes at most one annotation every ``wake_interval_s``."""

    def __init__(
        self,
        kube: Kube,
        settings: Settings,
        clock: Clock,
        metrics: Metrics,
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:
        self._kube = kube
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._may_act = may_act
        self._refused_at: float | None = None
        self._grown_node: str | None = None
        self._written_at = float("-inf")

    def note_refusal(self) -> None:
        """Note that a pod found no node, or not all that it was offered."""
        self._refused_at = self._clock.now()

    def note_growth(self, node: str, by_pod_end: bool) -> None:  # noqa: FBT001 - the store's callback, positional
        """Note that a node may take more than before. A pod's end counts only shortly after a refusal."""
        if self._refused_at is None:
            return
        if by_pod_end and self._clock.now() - self._refused_at > _POD_END_WINDOW_S:
            return
        self._grown_node = node

    async def run(self) -> None:
        """Wake when there is reason to, until cancelled."""
        while True:
            await self.round()
            await self._clock.sleep(min(1.0, self._settings.wake_interval_s))

    async def round(self) -> bool:
        """Write the annotation if somebody waits, room appeared since, and the last write is long enough ago."""
        node, now = self._grown_node, self._clock.now()
        if node is None or not self._may_act() or now - self._written_at < self._settings.wake_interval_s:
            return False
        self._written_at = now
        refused_at, self._grown_node = self._refused_at, None
        try:
            await self._kube.patch_node_annotation(
                node, self._settings.key_prefix + WOKEN_KEY, str(int(self._clock.wall()))
            )
        except KubeError as error:
            self._metrics.wakes.labels(error.code).inc()
            _LOG.warning("wake_failed", node=node, error=str(error))
            self._grown_node = self._grown_node or node
            return False
        if self._refused_at == refused_at:
            self._refused_at = None
        self._metrics.wakes.labels("written").inc()
        _LOG.info("woke_waiting_pods", node=node)
        return True
