"""Keeps the state in step with the API server: one list, then watches, for one kind of object, in one thread.

::

    list, page by page ──> watch from the list's version ──ended, broken, silent, refused──> watch from the last version
      ^                         │
      └────── 410 Gone ─────────┘      each arrow waits: full-jitter exponential backoff, back to its
                                       start only after a watch that lived long enough

A bad object is skipped, counted and passed; it never stops the others. No list asks for resourceVersion 0, so each is
consistent. Half-open connections are noticed by silence: bookmarks come about every minute.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Generic

import msgspec
import structlog

from extender.changes import Change, Gone, KnownObjects, ObjectHandler, ObjectKey, ObjectT, Set, Synced
from extender.delivery import Delivery
from extender.errors import KubeError, KubeRefused, UnreadableAnswer
from extender.reflection import (
    DEFAULT_PACE,
    Kind,
    ListWatch,
    Pace,
    ReflectorStats,
    Watch,
    read_event,
    read_key,
    read_object,
    read_page,
    read_status,
    read_version,
)

_LOG = structlog.get_logger(__name__)
_GONE = 410
_EXPIRED = ("Expired", "Gone")
_FIRST_PAGE_OBJECTS = 50


class Reflector(Generic[ObjectT]):
    """Lists and watches ``kind`` at ``source`` and hands changes to ``deliver``, in order.

    ``run`` is the thread's whole life; ``stop`` may be called from any thread. ``pause`` waits so many seconds or until
    stopped. ``draw`` returns a random number between its two arguments.
    """

    def __init__(
        self,
        source: ListWatch,
        kind: Kind[ObjectT],
        deliver: Callable[[Sequence[Change[ObjectT]]], None],
        pace: Pace = DEFAULT_PACE,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        draw: Callable[[float, float], float] = random.uniform,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self.kind = kind
        self.stats = ReflectorStats()
        self._source = source
        self._deliver = deliver
        self._pace = pace
        self._monotonic = monotonic
        self._draw = draw
        self._stopped = threading.Event()
        self._pause = pause or self._stopped.wait
        self._known = KnownObjects()
        self._version: str | None = None  # None: list before the next watch.
        self._failures = 0  # Steps in a row that did not end in a healthy watch.
        self._page_objects = min(pace.page_objects, _FIRST_PAGE_OBJECTS)
        self._stream: Watch | None = None

    def run(self) -> None:
        """List and watch until stopped."""
        while not self._stopped.is_set():
            wait_s = self._step()
            if wait_s > 0 and not self._stopped.is_set():
                self._pause(wait_s)

    def stop(self) -> None:
        """End ``run`` soon: at once where it waits for events, after the page it is reading otherwise."""
        self._stopped.set()
        stream = self._stream
        if stream is not None:
            stream.interrupt()

    def _step(self) -> float:
        """Do one list or one watch; return how many seconds to wait before the next."""
        began = self._monotonic()
        try:
            if self._version is None:
                self._list()
                return 0.0
            self._watch(self._version)
        except KubeError as error:
            return self._after_failure(began, error)
        except Exception as error:  # noqa: BLE001 - the edge of the thread: a reflector that died would go unnoticed
            _LOG.exception("reflector_bug", kind=self.kind.name)
            self._version = None
            return self._after_failure(began, error)
        return self._next_wait_s() if self._is_short(began) else self._reset()

    def _after_failure(self, began: float, error: Exception) -> float:
        if self._stopped.is_set():
            return 0.0
        was_watching = self._version is not None
        if isinstance(error, KubeRefused) and error.status == _GONE:
            self.stats.gone += 1
            self._version = None
        else:
            self.stats.errors += 1
        if isinstance(error, UnreadableAnswer):
            self._version = None  # Resuming would meet the same bytes again; a list steps over them.
            self._page_objects = max(1, self._page_objects // 2)
        if was_watching and not self._is_short(began):
            self._reset()
        wait_s = self._next_wait_s()
        _LOG.warning("reflector_retry", kind=self.kind.name, error=str(error), wait_s=round(wait_s, 3))
        return wait_s

    def _is_short(self, began: float) -> bool:
        return self._monotonic() - began < self._pace.healthy_after_s

    def _reset(self) -> float:
        self._failures = 0
        return 0.0

    def _next_wait_s(self) -> float:
        """Return a full-jitter exponential wait: anything between nothing and the bound, which doubles each time."""
        bound_s = min(self._pace.backoff_most_s, self._pace.backoff_first_s * 2 ** min(self._failures, 16))
        self._failures += 1
        return self._draw(0.0, bound_s)

    def _list(self) -> None:
        """Read one whole list, page by page, and tell what differs from what was known."""
        self.stats.lists += 1
        self._known.begin_list()
        version, token, is_probing = "", "", True
        while not self._stopped.is_set():
            limit = self._page_objects
            body = self._source.list_page(self.kind.path, limit, token)
            self._heard()
            page = read_page(body)
            self._deliver([change for raw in page.items or () for change in self._seen(raw)])
            version = version or page.metadata.resource_version
            token = page.metadata.continue_token
            if not token:
                self._finish_list(version)
                return
            if is_probing:
                is_probing = False
                self._page_objects = self._fitting(len(body), len(page.items or ()))
                # All pages of one list have to ask for the same size: start over, now that the size is known.
                version, token = (version, token) if self._page_objects == limit else ("", "")

    def _finish_list(self, version: str) -> None:
        vanished = [Gone(key) for key in self._known.finish_list()]
        self._deliver([*vanished, Synced()])
        self._version = version
        self.stats.synced = True

    def _fitting(self, body_bytes: int, objects: int) -> int:
        """Return the size of page to use from now on; it changes only where that is worth reading a page again."""
        if objects == 0:
            return self._page_objects
        fitting = max(1, min(self._pace.page_objects, self._pace.page_bytes * objects // body_bytes))
        is_near = fitting < 2 * self._page_objects and body_bytes < 2 * self._pace.page_bytes
        return self._page_objects if is_near else fitting

    def _watch(self, version: str) -> None:
        """Watch from ``version`` until the server ends it; every event moves the version where the next one starts."""
        self.stats.watches += 1
        timeout_s = int(self._draw(self._pace.watch_min_s, self._pace.watch_max_s))
        stream = self._source.open_watch(self.kind.path, version, timeout_s, self._pace.silence_s)
        self._stream = stream
        try:
            self._heard()
            for lines in stream:
                self._heard()
                self._take(lines)
                if self._stopped.is_set():
                    return
        finally:
            self._stream = None
            stream.close()

    def _take(self, lines: Sequence[bytes]) -> None:
        """Tell what the lines say, up to the first that ends the watch."""
        changes: list[Change[ObjectT]] = []
        try:
            for line in lines:
                if line:
                    changes.extend(self._event(line))
        finally:
            self._deliver(changes)

    def _event(self, line: bytes) -> Iterator[Change[ObjectT]]:
        event = read_event(line)
        if event is None:
            self._skip("event that is no JSON object", None)
            return
        if event.type == "ERROR":
            status = read_status(event.object)
            raise KubeRefused(_GONE if status.reason in _EXPIRED else status.code, status.message or status.reason)
        if event.type == "BOOKMARK":
            self.stats.bookmarks += 1
        elif event.type == "DELETED":
            self.stats.events += 1
            yield from self._deleted(event.object)
        else:
            self.stats.events += 1
            yield from self._seen(event.object)
        self._version = read_version(event.object) or self._version

    def _seen(self, raw: msgspec.Raw) -> Iterator[Change[ObjectT]]:
        item = read_object(self.kind, raw)
        if item is None:
            key = read_key(raw)
            self._skip("object that cannot be decoded", key)
            replaced = self._known.see_unreadable(key) if key is not None else None
        else:
            replaced, is_news = self._known.see(ObjectKey.of(item.metadata), item.metadata.resource_version)
        if replaced is not None:
            yield Gone(replaced)
        if item is not None and is_news:
            yield Set(item)

    def _deleted(self, raw: msgspec.Raw) -> Iterator[Change[ObjectT]]:
        key = read_key(raw)
        if key is None:
            self._skip("deleted object without a name", None)
        elif self._known.remove(key):
            yield Gone(key)

    def _skip(self, what: str, key: ObjectKey | None) -> None:
        self.stats.skips += 1
        name = "" if key is None else f"{key.namespace}/{key.name}"
        _LOG.warning("reflector_skip", kind=self.kind.name, what=what, object=name, uid=key.uid if key else "")

    def _heard(self) -> None:
        self.stats.last_contact = self._monotonic()


class ReflectorThread(Generic[ObjectT]):
    """A reflector's thread, and the way of its changes to ``handler`` on the running event loop."""

    def __init__(
        self, source: ListWatch, kind: Kind[ObjectT], handler: ObjectHandler[ObjectT], pace: Pace = DEFAULT_PACE
    ) -> None:
        self._delivery = Delivery(asyncio.get_running_loop(), handler)
        self._reflector = Reflector(source, kind, self._delivery, pace)
        self._thread = threading.Thread(target=self._reflector.run, name=f"reflect-{kind.name}", daemon=True)

    @property
    def stats(self) -> ReflectorStats:
        """How the reflector fares."""
        return self._reflector.stats

    @property
    def handler_failures(self) -> int:
        """How many changes the handler raised on."""
        return self._delivery.failures

    def start(self) -> None:
        """Begin to list."""
        self._thread.start()

    async def stop(self, timeout_s: float = 5.0) -> bool:
        """Deliver nothing more and end the thread; return whether it ended in time."""
        self._reflector.stop()
        self._delivery.stop()
        await asyncio.to_thread(self._thread.join, timeout_s)
        return not self._thread.is_alive()
