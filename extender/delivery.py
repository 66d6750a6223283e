"""Hands changes from a reflector's thread to the event loop, in order, in batches, with a bound on what is under way.

The thread waits when the loop falls behind, so the API server is read no faster than the state takes it. One batch is
small, so the loop answers kube-scheduler between two of them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Generic, assert_never

import structlog

from extender.changes import Change, Gone, ObjectHandler, ObjectT, Set, Synced

_LOG = structlog.get_logger(__name__)
_BATCH_CHANGES = 128
_BATCHES_UNDER_WAY = 8
_STOP_CHECK_S = 0.1


class Delivery(Generic[ObjectT]):
    """A bounded way from one thread to ``handler`` on ``loop``; ``failures`` counts what the handler raised on."""

    def __init__(self, loop: asyncio.AbstractEventLoop, handler: ObjectHandler[ObjectT]) -> None:
        self.failures = 0
        self._loop = loop
        self._handler = handler
        self._room = threading.Semaphore(_BATCHES_UNDER_WAY)
        self._stopped = threading.Event()

    def __call__(self, changes: Sequence[Change[ObjectT]]) -> None:
        """Hand over changes from the thread; waits while too much is under way, returns at once after ``stop``."""
        for start in range(0, len(changes), _BATCH_CHANGES):
            while not self._room.acquire(timeout=_STOP_CHECK_S):
                if self._stopped.is_set():
                    return
            self._schedule(changes[start : start + _BATCH_CHANGES])

    def stop(self) -> None:
        """Deliver nothing more."""
        self._stopped.set()

    def _schedule(self, batch: Sequence[Change[ObjectT]]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._apply, batch)
        except RuntimeError:  # The loop is closed.
            self._stopped.set()
            self._room.release()

    def _apply(self, batch: Sequence[Change[ObjectT]]) -> None:
        self._room.release()
        for change in batch:
            if self._stopped.is_set():
                return
            try:
                self._tell(change)
            except Exception:  # noqa: BLE001 - one object that the state cannot take must not cost the others
                self.failures += 1
                _LOG.exception("change_not_taken", change=_described(change))

    def _tell(self, change: Change[ObjectT]) -> None:
        match change:
            case Set(item=item):
                self._handler.on_set(item)
            case Gone(key=key):
                self._handler.on_delete(key)
            case Synced():
                self._handler.on_synced()
            case _:
                assert_never(change)


def _described(change: Change[ObjectT]) -> str:
    """Return kind and name of a change, never the object itself."""
    match change:
        case Set(item=item):
            return f"set {item.metadata.namespace}/{item.metadata.name} {item.metadata.uid}"
        case Gone(key=key):
            return f"gone {key.namespace}/{key.name} {key.uid}"
        case Synced():
            return "synced"
        case _:
            assert_never(change)
