"""Tells people about devices in trouble: events on change only, at a bounded rate, by whoever may act on the cluster.

Every replica keeps track, so that its metrics are right; only the one that acts writes. What it has not told yet it
tells when its turn comes, as it is then: a device that went out and came back in between is no news.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog
from prometheus_client import CollectorRegistry, Counter

from extender.clock import Clock
from extender.errors import KubeError, KubeRefused
from extender.kubeapi import EventNote, Kube
from extender.store import ClusterStore
from extender.trouble import Place, Trouble, Troubles, notes_of, out_of_use, overbooked, pods_on, return_note

_LOG = structlog.get_logger(__name__)

INTERVAL_S = 0.5
APART_S = 10.0
"""A device that flaps is told of so often and not more."""
_EVENTS_A_ROUND = 10
_QUEUED = 2000
"""A lost rack: 64 devices with 30 pods each."""


@dataclass(slots=True)
class _Told:
    """What was told last of a place, None for its end, and when (seconds of the extender's clock)."""

    trouble: Trouble | None
    at: float


class Alarms:
    """Follows the troubles of the fleet and writes events about them; ``round`` every ``INTERVAL_S``."""

    def __init__(
        self,
        store: ClusterStore,
        kube: Kube,
        clock: Clock,
        registry: CollectorRegistry,
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store = store
        self._kube = kube
        self._clock = clock
        self._may_act = may_act
        self._by_node: dict[str, Troubles] = {}
        self._overbooked: Troubles = {}
        self._unsettled: dict[Place, None] = {}
        self._told: dict[Place, _Told] = {}
        self._queue: deque[EventNote] = deque()
        self._events = Counter(
            "tangram_extender_trouble_events",
            "Events about devices in trouble by what became of them",
            ["outcome"],
            registry=registry,
        )

    def troubles(self) -> Troubles:
        """Return every trouble as of the last round."""
        found = dict(self._overbooked)
        for troubles in self._by_node.values():
            found |= troubles
        return found

    async def round(self) -> int:
        """Look at what has changed, and write the events that are due; return how many were written."""
        self._look()
        if not self._may_act():
            return 0
        self._announce()
        return await self._write()

    def _look(self) -> None:
        for node in self._store.take_changed_health():
            self._replace(self._by_node.pop(node, {}), found := out_of_use(self._store, node))
            if found:
                self._by_node[node] = found
        before, self._overbooked = self._overbooked, overbooked(self._store)
        self._replace(before, self._overbooked)

    def _replace(self, before: Troubles, after: Troubles) -> None:
        """Note the places whose trouble is another one now."""
        for place in before.keys() | after.keys():
            if before.get(place) != after.get(place):
                self._unsettled[place] = None

    def _announce(self) -> None:
        """Queue events about the places whose trouble is not what was told, each at most every ``APART_S``."""
        now = self._clock.now()
        for place in sorted(self._unsettled, key=lambda each: (each.node, each.uuid)):
            told = self._told.get(place)
            if told is not None and now - told.at < APART_S:
                continue
            del self._unsettled[place]
            self._tell(place, self._trouble_at(place), told.trouble if told is not None else None, now)
        self._told = {
            place: told for place, told in self._told.items() if told.trouble is not None or now - told.at < APART_S
        }

    def _tell(self, place: Place, trouble: Trouble | None, told: Trouble | None, now: float) -> None:
        if trouble == told:
            return
        self._told[place] = _Told(trouble, now)
        if trouble is None:
            self._enqueue(return_note(place))
            return
        pods = pods_on(self._store, place)
        _LOG.warning("device_trouble", node=place.node, uuid=place.uuid, kind=trouble.kind, pods=len(pods))
        for note in notes_of(place, trouble, pods):
            self._enqueue(note)

    def _trouble_at(self, place: Place) -> Trouble | None:
        troubles: Mapping[Place, Trouble] = self._by_node.get(place.node, {})
        return (self._overbooked if place.is_overbooked else troubles).get(place)

    def _enqueue(self, note: EventNote) -> None:
        if len(self._queue) >= _QUEUED:
            self._queue.popleft()
            self._events.labels("dropped").inc()
        self._queue.append(note)

    async def _write(self) -> int:
        written = 0
        while self._queue and written < _EVENTS_A_ROUND and self._may_act():
            note = self._queue.popleft()
            try:
                await self._kube.create_event(note)
            except KubeError as error:
                self._events.labels(error.code).inc()
                _LOG.warning("event_failed", about=note.name, error=str(error))
                if not isinstance(error, KubeRefused):
                    self._queue.appendleft(note)
                    return written
            else:
                self._events.labels("written").inc()
                written += 1
        return written
