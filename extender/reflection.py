"""How a reflector reads Kubernetes' list pages and watch events, and the numbers that tell how it fares.

Pages and events are taken apart into raw objects first, so that one bad object costs itself only and no call holds the
interpreter for long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec

from extender.changes import KubeObject, ObjectKey, ObjectT
from extender.errors import UnreadableAnswer
from extender.objects import Node, Pod

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Kind(Generic[ObjectT]):
    """What one reflector reads: the kind's name in logs and metrics, the list's path, the decoder of one object."""

    name: str
    path: str
    decoder: msgspec.json.Decoder[ObjectT]


PODS: Kind[Pod] = Kind("pods", "/api/v1/pods", msgspec.json.Decoder(Pod))
NODES: Kind[Node] = Kind("nodes", "/api/v1/nodes", msgspec.json.Decoder(Node))


@dataclass(slots=True)
class ReflectorStats:
    """How a reflector fares; written by its thread alone, read by metrics and readiness.

    ``lists`` and ``watches`` count what was begun, ``events`` objects set or deleted by watches, ``skips`` objects that
    could not be decoded, ``gone`` answers 410, ``errors`` everything else that ended a list or watch early.
    """

    lists: int = 0
    watches: int = 0
    events: int = 0
    bookmarks: int = 0
    skips: int = 0
    gone: int = 0
    errors: int = 0
    synced: bool = False
    last_contact: float | None = None

    def age_s(self, now: float) -> float:
        """Return seconds since the API server was last heard of, on the reflector's clock; infinite before that."""
        return math.inf if self.last_contact is None else now - self.last_contact


class Watch(Protocol):
    """An open watch."""

    def __iter__(self) -> Iterator[list[bytes]]:
        """Yield batches of lines; KubeError where it breaks."""

    def interrupt(self) -> None:
        """End it from another thread."""

    def close(self) -> None:
        """Let go of its connection."""


class ListWatch(Protocol):
    """Where lists and watches come from, blocking; ``kube.KubeClient`` is one. Raises KubeError."""

    def list_page(self, path: str, limit: int, continue_token: str) -> bytes:
        """Return one page of a consistent list."""

    def open_watch(self, path: str, resource_version: str, timeout_s: int, silence_s: float) -> Watch:
        """Open a watch with bookmarks."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a reflector goes; all times in seconds.

    ``page_objects`` bounds a page (1 to 500) and ``page_bytes`` is what a page should not exceed: taking 1 MiB apart
    holds the interpreter for about 2 ms. A watch lives a random time between the two ``watch_s``, and is broken off
    after ``silence_s`` without a byte, which has to be more than the minute between two bookmarks.
    """

    page_objects: int = 250
    page_bytes: int = 1024 * 1024
    watch_min_s: int = 240
    watch_max_s: int = 480
    silence_s: float = 90.0
    backoff_first_s: float = 1.0
    backoff_most_s: float = 30.0
    healthy_after_s: float = 30.0


DEFAULT_PACE = Pace()


class PageMetadata(msgspec.Struct, frozen=True):
    """Where a page belongs; ``continue_token`` is empty on the last one."""

    resource_version: str = msgspec.field(name="resourceVersion", default="")
    continue_token: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct, frozen=True):
    """One page of a list, its objects undecoded."""

    metadata: PageMetadata
    items: tuple[msgspec.Raw, ...] | None = None


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch, its object undecoded."""

    type: str
    object: msgspec.Raw


class WatchStatus(msgspec.Struct, frozen=True):
    """The object of an ERROR event."""

    code: int = 0
    reason: str = ""
    message: str = ""


class _BareMetadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Bare(msgspec.Struct, frozen=True):
    metadata: _BareMetadata


_PAGE = msgspec.json.Decoder(Page)
_EVENT = msgspec.json.Decoder(WatchEvent)
_STATUS = msgspec.json.Decoder(WatchStatus)
_BARE = msgspec.json.Decoder(_Bare)


def read_page(body: bytes) -> Page:
    """Take a page apart; raise UnreadableAnswer if it is no list."""
    try:
        return _PAGE.decode(body)
    except DECODE_ERRORS as error:
        msg = f"page of {len(body)} bytes: {error}"
        raise UnreadableAnswer(msg) from error


def read_event(line: bytes) -> WatchEvent | None:
    """Take a watch event apart; None if it is none."""
    return _read(_EVENT, line)


def read_status(raw: msgspec.Raw) -> WatchStatus:
    """Read the object of an ERROR event; one that cannot be read has code 0."""
    return _read(_STATUS, raw) or WatchStatus()


def read_object(kind: Kind[ObjectT], raw: msgspec.Raw) -> ObjectT | None:
    """Decode one object; None if it is malformed or names no UID."""
    item = _read(kind.decoder, raw)
    return item if item is not None and _is_identified(item) else None


def read_version(raw: msgspec.Raw) -> str:
    """Read an object's resource version, empty if it cannot be read."""
    bare = _read(_BARE, raw)
    return bare.metadata.resource_version if bare is not None else ""


def read_key(raw: msgspec.Raw) -> ObjectKey | None:
    """Read which object this is, although the rest of it may be malformed; None if not even that can be read."""
    bare = _read(_BARE, raw)
    if bare is None or not bare.metadata.uid or not bare.metadata.name:
        return None
    return ObjectKey(bare.metadata.namespace, bare.metadata.name, bare.metadata.uid)


def _is_identified(item: KubeObject) -> bool:
    return bool(item.metadata.uid and item.metadata.name)


def _read(decoder: msgspec.json.Decoder[_T], raw: bytes | msgspec.Raw) -> _T | None:
    try:
        return decoder.decode(raw)
    except DECODE_ERRORS:
        return None
