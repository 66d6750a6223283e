"""Explanations that last: every attempt over time, kept on disk in a thread of its own, off the way of decisions.

::

    decision ── note() ──> a bounded queue ──> the thread: a batch, one transaction ──> history_file
                  │ full: lost, counted                      │ disk full, locked, damaged: lost, counted;
                                                               the file is opened again a while later

``note`` never waits and never raises: what cannot be kept costs explanations, never decisions. Without a file the
history is kept in memory and is gone with the process; answers say so (``Kept``).
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import structlog

from extender.errors import ExtenderError
from extender.history_file import MEMORY, Attempt, Bounds, Entry, Explanation, HistoryFile

_LOG = structlog.get_logger(__name__)
_QUEUED = 10_000
_BATCH = 500
_LINGER_S = 0.5
AGAIN_S = 5.0
_ANSWER_S = 3.0
MEMORY_MEGABYTES = 32
_IN_MEMORY = (
    "explanations are kept in this replica's memory and end with its process: give the replica a volume and set "
    "history.path to keep them"
)
DELETED = "file-deleted"
"""Cause of what was lost with a file that somebody deleted or replaced while it was written to."""
_ON_DISK = "explanations are kept on this replica's volume"


class HistoryUnavailable(ExtenderError):
    """The history cannot be read now; the message says why."""

    code = "HistoryUnavailable"


class _LeftAlone(OSError):
    """The file failed a moment ago and is not tried again yet."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept where. ``lost`` counts entries that could not be kept, by cause; ``trouble`` is the present one."""

    replica: str
    is_durable: bool
    note: str
    since: float | None
    days: float
    lost: dict[str, int]
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class PodHistory:
    """All that one replica keeps of the pods of one name, newest first."""

    kept: Kept
    attempts: tuple[Attempt, ...]
    explanations: tuple[Explanation, ...]


@dataclass(frozen=True, slots=True)
class _Question:
    namespace: str
    name: str
    limit: int
    answer: Future[PodHistory]


class History:
    """Keeps entries and answers questions about them; ``path`` empty keeps them in memory.

    ``note`` is for the event loop, ``start`` and ``stop`` for whoever owns it. ``wall`` is seconds since 1970; a file
    that failed is opened again after ``again_s`` seconds.
    """

    def __init__(
        self,
        path: str,
        bounds: Bounds,
        replica: str,
        wall: Callable[[], float] = time.time,
        again_s: float = AGAIN_S,
    ) -> None:
        self._path = path or MEMORY
        self._bounds = bounds if path else Bounds(bounds.days, min(bounds.megabytes, MEMORY_MEGABYTES))
        self.replica = replica
        self._wall = wall
        self._queue: queue.Queue[Entry | _Question | None] = queue.Queue(_QUEUED)
        self._hurry = threading.Event()
        self._thread: threading.Thread | None = None
        self._file: HistoryFile | None = None
        self._again_s = again_s
        self._retry_at = 0.0
        self._cause = ""
        self.lost: Counter[str] = Counter()
        self.trouble = ""

    def start(self) -> None:
        """Start the thread; it opens the file."""
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Write what is queued and end the thread."""
        if self._thread is None:
            return
        try:
            self._queue.put(None, timeout=timeout_s)
        except queue.Full:
            _LOG.warning("history_not_flushed")
        self._hurry.set()
        self._thread.join(timeout_s)
        self._thread = None

    def note(self, entry: Entry) -> None:
        """Keep an entry, or count it as lost where the queue is full. Never waits."""
        try:
            self._queue.put_nowait(entry)
        except queue.Full:
            self.lost["queue-full"] += 1

    async def of_pod(self, namespace: str, name: str, limit: int = 200) -> PodHistory:
        """Return what is kept of the pods of that name; raise HistoryUnavailable where it cannot be read now."""
        if self._thread is None:
            raise HistoryUnavailable("history: not running")
        question = _Question(namespace, name, limit, Future())
        try:
            self._queue.put_nowait(question)
        except queue.Full as error:
            raise HistoryUnavailable("history: busy, ask again in a few seconds") from error
        self._hurry.set()
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await asyncio.wrap_future(question.answer)
        except TimeoutError as error:
            raise HistoryUnavailable(f"history: no answer within {_ANSWER_S:g} s") from error

    # In the thread.

    def _run(self) -> None:
        try:
            self._open()
        except Exception as error:  # noqa: BLE001 - the edge of a thread: it is tried again with the first entry
            self._fail(error, 0)
        is_over = False
        while not is_over:
            entries, questions, is_over = self._collect()
            if entries:
                self._write(entries)
            for question in questions:
                self._answer(question)
        if self._file is not None:
            self._file.close()

    def _collect(self) -> tuple[list[Entry], list[_Question], bool]:
        """Return what is queued: wait for the first, then let more come for a moment unless somebody asks something.

        Meanwhile nobody waits at the queue, for to wake a waiting thread costs whoever decides more than to queue does.
        """
        entries: list[Entry] = []
        item = self._queue.get()
        if isinstance(item, Attempt | Explanation):
            self._hurry.wait(_LINGER_S)
        self._hurry.clear()
        while True:
            if item is None:
                return entries, [], True
            if isinstance(item, _Question):
                return entries, [item], False
            entries.append(item)
            if len(entries) == _BATCH or self._queue.empty():  # Nobody else takes from it.
                return entries, [], False
            item = self._queue.get_nowait()

    def _write(self, entries: list[Entry]) -> None:
        try:
            self._opened().write(entries, self._wall())
        except Exception as error:  # noqa: BLE001 - the edge of a thread: a bad entry must not end the history
            self._fail(error, len(entries))
        else:
            self.trouble = ""

    def _answer(self, question: _Question) -> None:
        if not question.answer.set_running_or_notify_cancel():
            return
        try:
            file = self._present() or self._open()
            attempts = file.attempts(question.namespace, question.name, question.limit)
            explanations = file.explanations(question.namespace, question.name)
            question.answer.set_result(PodHistory(self._kept(file), attempts, explanations))
        except Exception as error:  # noqa: BLE001 - the edge of a thread, as above
            self._fail(error, 0)
            question.answer.set_exception(HistoryUnavailable(f"history: {error}"))

    def _opened(self) -> HistoryFile:
        """Return the file to write to; after a failure it is left alone for a while."""
        file = self._present()
        if file is None:
            if time.monotonic() < self._retry_at:
                raise _LeftAlone(self.trouble)
            return self._open()
        return file

    def _present(self) -> HistoryFile | None:
        """Return the open file, None where there is none; one that was deleted is given up with all that it had."""
        if self._file is not None and not self._file.is_there():
            rows = self._file.rows()
            self.lost[DELETED] += rows
            _LOG.warning("history_deleted", path=self._path, lost=rows)
            self._file.close()
            self._file = None
        return self._file

    def _open(self) -> HistoryFile:
        self._file = HistoryFile(self._path, self._bounds, self.replica)
        return self._file

    def _fail(self, error: Exception, entries: int) -> None:
        """Count what was lost; close the file, so that it is opened anew when the trouble may be over."""
        if not isinstance(error, _LeftAlone):
            self._cause = str(getattr(error, "sqlite_errorname", None) or type(error).__name__)
            self._retry_at = time.monotonic() + self._again_s
            if str(error) != self.trouble:
                _LOG.warning("history_failed", error=str(error), cause=self._cause, lost=entries)
            self.trouble = str(error)
        if entries:
            self.lost[self._cause] += entries
        if self._file is not None and self._path != MEMORY:
            self._file.close()
            self._file = None

    def _kept(self, file: HistoryFile) -> Kept:
        is_durable = self._path != MEMORY
        return Kept(
            replica=self.replica,
            is_durable=is_durable,
            note=_ON_DISK if is_durable else _IN_MEMORY,
            since=file.since(),
            days=self._bounds.days,
            lost=dict(self.lost),
            trouble=self.trouble,
        )
