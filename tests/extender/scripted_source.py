"""A list-and-watch source that plays a script, and a clock that moves only when somebody waits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from extender.errors import KubeError

MOST_WATCHES = 1_000


class ManualTime:
    """Seconds that pass when the reflector pauses or a watch stays open; ends the run after ``most_waits`` pauses."""

    def __init__(self, most_waits: int) -> None:
        self.now = 0.0
        self.waits: list[float] = []
        self.most_waits = most_waits
        self.on_exhausted: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds
        self.waits.append(seconds)
        if len(self.waits) >= self.most_waits:
            self.on_exhausted()


@dataclass
class ScriptedWatch:
    """Lets time pass, then yields lines, then ends or breaks."""

    time: ManualTime
    steps: Sequence[list[bytes] | float | Exception]
    closed: bool = False

    def __iter__(self) -> Iterator[list[bytes]]:
        for step in self.steps:
            if isinstance(step, Exception):
                raise step
            if isinstance(step, float):
                self.time.now += step
            else:
                yield step

    def interrupt(self) -> None: ...

    def close(self) -> None:
        self.closed = True


@dataclass
class ScriptedSource:
    """Answers lists and watches from scripts; the last entry of each repeats for ever."""

    time: ManualTime
    lists: list[list[bytes] | KubeError]
    watches: list[Sequence[list[bytes] | float | Exception] | KubeError]
    listed: list[tuple[int, str]] = field(default_factory=list)
    watched: list[tuple[str, int, float]] = field(default_factory=list)
    _pages: list[bytes] = field(default_factory=list)

    def list_page(self, path: str, limit: int, continue_token: str) -> bytes:
        self.listed.append((limit, continue_token))
        if not continue_token:
            entry = self.lists[0] if len(self.lists) == 1 else self.lists.pop(0)
            if isinstance(entry, KubeError):
                raise entry
            self._pages = entry
        return self._pages[int(continue_token or 0)]

    def open_watch(self, path: str, resource_version: str, timeout_s: int, silence_s: float) -> ScriptedWatch:
        self.watched.append((resource_version, timeout_s, silence_s))
        if len(self.watched) >= MOST_WATCHES:
            self.time.on_exhausted()
        entry = self.watches[0] if len(self.watches) == 1 else self.watches.pop(0)
        if isinstance(entry, KubeError):
            raise entry
        return ScriptedWatch(self.time, entry)


def pod(name: str, version: str, uid: str | None = None, **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "ml", "name": name, "uid": uid or f"uid-{name}", "resourceVersion": version}
        | metadata
    }


def poison(name: str, version: str, uid: str | None = None) -> dict[str, Any]:
    """A pod whose containers are a number: no decoder of pods can take it."""
    return pod(name, version, uid) | {"spec": {"containers": 7}}


def pages(version: str, *items: Sequence[dict[str, Any]]) -> list[bytes]:
    """One list, a page for each argument."""
    last = len(items) - 1
    return [
        json.dumps(
            {
                "metadata": {"resourceVersion": version, "continue": "" if index == last else str(index + 1)},
                "items": page,
            }
        ).encode()
        for index, page in enumerate(items)
    ]


def event(kind: str, item: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": item}).encode()


def bookmark(version: str) -> bytes:
    return event("BOOKMARK", {"metadata": {"resourceVersion": version}})


GONE_EVENT = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"})
