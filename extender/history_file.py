"""The file behind lasting explanations: SQLite, one connection, bounded by days and by size.

Used by one thread alone (``extender.history``). Equal outcomes in a row are one attempt with a count, so that a pod
that waits for days costs a few rows. The oldest make room: rows past their days first, then whatever is oldest while
the file is above its bound. A file that is damaged is put aside (``.broken``) and a new one begun; everything else that
goes wrong is raised as sqlite3.Error, for the caller to count.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

MEMORY = ":memory:"
EXPLANATIONS_A_POD = 6
ATTEMPTS_A_POD = 1000
_PAGE_BYTES = 4096
_BUSY_S = 1.0
_MAKE_ROOM_ABOVE = 0.9
_ROOM = 10
"""One part in so many of the oldest rows goes at a time."""
_MOST_UNPACKED = 4 * 2**20
_DAMAGED = ("SQLITE_NOTADB", "SQLITE_CORRUPT")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS attempts (
    id INTEGER PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL, pod_uid TEXT NOT NULL, verb TEXT NOT NULL,
    first_at REAL NOT NULL, last_at REAL NOT NULL, times INTEGER NOT NULL, outcome TEXT NOT NULL,
    nodes_in INTEGER NOT NULL, nodes_out INTEGER NOT NULL, policy TEXT NOT NULL, node TEXT NOT NULL,
    message TEXT NOT NULL, reasons TEXT NOT NULL, devices TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS attempts_by_pod ON attempts (namespace, name, last_at);
CREATE INDEX IF NOT EXISTS attempts_by_time ON attempts (last_at);
CREATE TABLE IF NOT EXISTS explanations (
    id INTEGER PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL, pod_uid TEXT NOT NULL, at REAL NOT NULL,
    body BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS explanations_by_pod ON explanations (namespace, name, at);
CREATE INDEX IF NOT EXISTS explanations_by_time ON explanations (at);
"""
_READ = (
    "namespace", "name", "pod_uid", "verb", "first_at", "last_at", "times", "outcome", "nodes_in", "nodes_out",
    "policy", "node", "message", "reasons", "devices",
)  # fmt: skip
_NEWEST = (
    "SELECT id, outcome, nodes_in, nodes_out, policy, node, message, reasons, devices FROM attempts"
    " WHERE namespace = ? AND name = ? AND pod_uid = ? AND verb = ? ORDER BY last_at DESC, id DESC LIMIT 1"
)
_INSERT = (
    "INSERT INTO attempts (namespace, name, pod_uid, verb, first_at, last_at, times, outcome, nodes_in, nodes_out,"
    " policy, node, message, reasons, devices) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of asking about a pod, ``times`` times with the same outcome, from ``first_at`` to ``last_at``.

    Times are seconds since 1970. ``reasons`` is reason code -> number of nodes refused for it. ``replica`` is whoever
    answered.
    """

    namespace: str
    name: str
    pod_uid: str
    verb: str
    first_at: float
    last_at: float
    outcome: str
    times: int = 1
    nodes_in: int = 0
    nodes_out: int = 0
    policy: str = ""
    node: str = ""
    message: str = ""
    reasons: Mapping[str, int] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    replica: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A diagnosis as it was made at one moment, as JSON; ``at`` in seconds since 1970."""

    namespace: str
    name: str
    pod_uid: str
    at: float
    body: msgspec.Raw
    replica: str = ""


Entry = Attempt | Explanation


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is kept: days, and MiB of the file without its write-ahead log (which is bounded to a quarter)."""

    days: float = 14.0
    megabytes: int = 256


class HistoryFile:
    """Attempts and explanations in one SQLite file; ``path`` ``:memory:`` keeps them in memory. Not for two threads."""

    def __init__(self, path: str, bounds: Bounds, replica: str = "") -> None:
        """Open the file, or begin it. Raises sqlite3.Error or OSError where that cannot be done."""
        self._bounds = bounds
        self._replica = replica
        try:
            self._base = _opened(path, bounds)
        except sqlite3.DatabaseError as error:
            if path == MEMORY or getattr(error, "sqlite_errorname", "") not in _DAMAGED:
                raise
            _put_aside(Path(path))
            self._base = _opened(path, bounds)
        self._path = path
        self._inode = _inode(path)

    def close(self) -> None:
        """Close the file."""
        self._base.close()

    def is_there(self) -> bool:
        """Return whether the file is still the one under its path: SQLite writes on into one that was deleted."""
        return self._path == MEMORY or _inode(self._path) == self._inode

    def rows(self) -> int:
        """Return how many attempts and explanations are kept."""
        tables = ("attempts", "explanations")
        return sum(self._base.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables)  # noqa: S608 - as above

    def write(self, entries: Sequence[Entry], now: float) -> None:
        """Keep some entries, all or none of them, and make room for them."""
        with self._base:
            self._make_room(now)
            for entry in entries:
                if isinstance(entry, Attempt):
                    self._keep_attempt(entry)
                else:
                    self._keep_explanation(entry)

    def attempts(self, namespace: str, name: str, limit: int) -> tuple[Attempt, ...]:
        """Return the newest attempts about a pod of that name, newest first."""
        rows = self._base.execute(
            f"SELECT {', '.join(_READ)} FROM attempts WHERE namespace = ? AND name = ?"  # noqa: S608 - names of ours
            " ORDER BY last_at DESC, id DESC LIMIT ?",
            (namespace, name, limit),
        )
        return tuple(self._attempt(row) for row in rows)

    def explanations(self, namespace: str, name: str) -> tuple[Explanation, ...]:
        """Return the explanations of a pod of that name that are kept, newest first."""
        rows = self._base.execute(
            "SELECT namespace, name, pod_uid, at, body FROM explanations WHERE namespace = ? AND name = ?"
            " ORDER BY at DESC, id DESC LIMIT ?",
            (namespace, name, EXPLANATIONS_A_POD),
        )
        return tuple(
            Explanation(namespace, name, uid, at, msgspec.Raw(_unpacked(body)), self._replica)
            for _, _, uid, at, body in rows
        )

    def since(self) -> float | None:
        """Return from when on something is kept, in seconds since 1970; None while nothing is."""
        found = self._base.execute("SELECT min(last_at) FROM attempts").fetchone()[0]
        return None if found is None else float(found)

    def bytes_used(self) -> int:
        """Return how much of the file is in use."""
        pages, free = (self._base.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count"))
        return int(pages - free) * _PAGE_BYTES

    def _attempt(self, row: tuple[Any, ...]) -> Attempt:
        said = dict(zip(_READ, row, strict=True))
        said["reasons"] = msgspec.json.decode(said["reasons"], type=dict[str, int])
        said["devices"] = tuple(filter(None, said["devices"].split(",")))
        return Attempt(**said, replica=self._replica)

    def _keep_attempt(self, attempt: Attempt) -> None:
        who = (attempt.namespace, attempt.name, attempt.pod_uid, attempt.verb)
        what = (
            attempt.outcome,
            attempt.nodes_in,
            attempt.nodes_out,
            attempt.policy,
            attempt.node,
            attempt.message,
            msgspec.json.encode(dict(sorted(attempt.reasons.items()))).decode(),
            ",".join(attempt.devices),
        )
        newest = self._base.execute(_NEWEST, who).fetchone()
        if newest is not None and newest[1:] == what:
            self._base.execute(
                "UPDATE attempts SET last_at = max(last_at, ?), times = times + ? WHERE id = ?",
                (attempt.last_at, attempt.times, newest[0]),
            )
            return
        self._base.execute(_INSERT, (*who, attempt.first_at, attempt.last_at, attempt.times, *what))
        self._trim("attempts", attempt.namespace, attempt.name, ATTEMPTS_A_POD)

    def _keep_explanation(self, explanation: Explanation) -> None:
        self._base.execute(
            "INSERT INTO explanations (namespace, name, pod_uid, at, body) VALUES (?, ?, ?, ?, ?)",
            (
                explanation.namespace,
                explanation.name,
                explanation.pod_uid,
                explanation.at,
                zlib.compress(bytes(explanation.body)),
            ),
        )
        self._trim("explanations", explanation.namespace, explanation.name, EXPLANATIONS_A_POD)

    def _trim(self, table: str, namespace: str, name: str, most: int) -> None:
        """Drop a pod's oldest rows beyond ``most``."""
        self._base.execute(
            f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE namespace = ? AND name = ?"  # noqa: S608 - two tables of ours
            " ORDER BY id DESC LIMIT -1 OFFSET ?)",
            (namespace, name, most),
        )

    def _make_room(self, now: float) -> None:
        oldest = now - self._bounds.days * 86_400
        self._base.execute("DELETE FROM attempts WHERE last_at < ?", (oldest,))
        self._base.execute("DELETE FROM explanations WHERE at < ?", (oldest,))
        if self.bytes_used() <= self._bounds.megabytes * 2**20 * _MAKE_ROOM_ABOVE:
            return
        for table, column in (("explanations", "at"), ("attempts", "last_at")):
            self._base.execute(
                f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table} ORDER BY {column}"  # noqa: S608 - names of ours
                f" LIMIT (SELECT 1 + count(*) / {_ROOM} FROM {table}))"
            )


def _opened(path: str, bounds: Bounds) -> sqlite3.Connection:
    base = sqlite3.connect(path, timeout=_BUSY_S, check_same_thread=False)
    try:
        base.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        base.execute("PRAGMA journal_mode = WAL")
        base.execute("PRAGMA synchronous = NORMAL")
        base.execute(f"PRAGMA journal_size_limit = {bounds.megabytes * 2**20 // 4}")
        base.execute(f"PRAGMA max_page_count = {bounds.megabytes * 2**20 // _PAGE_BYTES}")
        base.executescript(_SCHEMA)
    except BaseException:
        base.close()
        raise
    return base


def _inode(path: str) -> int | None:
    try:
        return Path(path).stat().st_ino
    except OSError:
        return None


def _put_aside(path: Path) -> None:
    """Move a damaged file out of the way, over one that was moved before; its log goes with it."""
    path.replace(path.with_name(path.name + ".broken"))
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _unpacked(packed: bytes) -> bytes:
    return zlib.decompressobj().decompress(packed, _MOST_UNPACKED)
