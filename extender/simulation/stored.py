"""Objects of one kind as encoded bytes, their order, and the bounded history that watches read.

An object is encoded once, when it is written; lists and watches only copy bytes, which is what lets one process hold
5,000 nodes and 100,000 pods. Not thread-safe: ``SimulatedApiServer`` holds its lock around every call.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Key = tuple[str, str]
"""Namespace (empty for nodes) and name."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object as it was last written; ``version`` is the number behind its resourceVersion."""

    uid: str
    version: int
    content: bytes


class Collection:
    """All objects of one kind. ``history_events`` bounds how far back a watch may start."""

    def __init__(self, kind: str, api_version: str, history_events: int) -> None:
        self.kind = kind
        self.api_version = api_version
        self.floor = 0  # Watches from before this version are too old.
        self._objects: dict[Key, StoredObject] = {}
        self._order: list[Key] | None = None
        self._versions: list[int] = []
        self._lines: list[tuple[str, bytes]] = []
        self._history_events = history_events
        self._listeners: set[Callable[[], None]] = set()

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: Key) -> StoredObject | None:
        """Return one object."""
        return self._objects.get(key)

    def put(self, key: Key, stored: StoredObject) -> None:
        """Write an object and tell the watches."""
        is_new = key not in self._objects
        if is_new:
            self._order = None
        self._objects[key] = stored
        self._record("ADDED" if is_new else "MODIFIED", key, stored.version, stored.content)

    def remove(self, key: Key, last: StoredObject) -> None:
        """Take an object away; ``last`` is what watches see of it."""
        del self._objects[key]
        self._order = None
        self._record("DELETED", key, last.version, last.content)

    def snapshot(self, namespace: str) -> list[tuple[Key, StoredObject]]:
        """Return the objects of a namespace, of all if it is empty, ordered by namespace and name."""
        if self._order is None:
            self._order = sorted(self._objects)
        order = self._order
        if namespace:
            order = order[bisect_left(order, (namespace, "")) : bisect_left(order, (namespace + "\0", ""))]
        return [(key, self._objects[key]) for key in order]

    def lines_after(self, version: int, namespace: str) -> Iterator[bytes]:
        """Yield the watch events after ``version``, oldest first; the caller has compared it with ``floor``."""
        start = bisect_right(self._versions, version)
        for place, line in self._lines[start:]:
            if not namespace or place == namespace:
                yield line

    def forget_history(self) -> None:
        """Compact: every watch that starts before now, or is behind, gets 410."""
        if self._versions:
            self.floor = self._versions[-1]
        self._versions.clear()
        self._lines.clear()

    def listen(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` after each write, until ``unlisten``."""
        self._listeners.add(wake)

    def unlisten(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` no more."""
        self._listeners.discard(wake)

    def wake_all(self) -> None:
        """Wake every watch."""
        for wake in tuple(self._listeners):
            wake()

    def _record(self, event: str, key: Key, version: int, content: bytes) -> None:
        self._versions.append(version)
        self._lines.append((key[0], b'{"type":"%s","object":%s}\n' % (event.encode(), content)))
        if len(self._lines) > 2 * self._history_events:
            cut = len(self._lines) - self._history_events
            self.floor = self._versions[cut - 1]
            del self._versions[:cut], self._lines[:cut]
        self.wake_all()
