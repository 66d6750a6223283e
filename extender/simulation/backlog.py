"""kube-scheduler's queue: pods ready to try, pods backing off, pods that wait for something to change.

::

    add ──> ready ──pop──> (being scheduled) ──park──> parked ──wake, or parked too long──┐
              ^                     └──retry──> backing off <─────────────────────────────┘
              └───────────────── back-off over ──────┘

The back-off starts at one second and doubles to ten (kube-scheduler's defaults). A pod is in one place only.
"""

from __future__ import annotations

import heapq
import itertools
import math

FIRST_BACKOFF_S = 1.0
LONGEST_BACKOFF_S = 10.0
LONGEST_PARKED_S = 60.0


class Backlog:
    """Pods by UID, each with the number of its tries. ``now`` is seconds on one clock throughout."""

    def __init__(self) -> None:
        self._ready: list[tuple[int, float, int, str]] = []
        self._backing_off: list[tuple[float, int, str]] = []
        self._parked: dict[str, float] = {}
        self._places: dict[str, int] = {}
        self._tries: dict[str, tuple[int, int, float]] = {}
        self._ticket = itertools.count(1)

    def __len__(self) -> int:
        return len(self._tries)

    def __contains__(self, uid: str) -> bool:
        return uid in self._tries

    def add(self, uid: str, now: float, priority: int = 0) -> None:
        """Let a new pod stand in line; one that is known already stays where it is."""
        if uid not in self._tries:
            self._tries[uid] = (priority, 0, now)
            self._make_ready(uid)

    def discard(self, uid: str) -> None:
        """Forget a pod: it is bound, or gone."""
        self._tries.pop(uid, None)
        self._places.pop(uid, None)
        self._parked.pop(uid, None)

    def pop(self, now: float) -> str | None:
        """Take the pod of highest priority, oldest first; None where nobody is ready."""
        self._advance(now)
        while self._ready:
            _, _, ticket, uid = heapq.heappop(self._ready)
            if self._places.get(uid) == ticket:
                del self._places[uid]
                priority, tries, since = self._tries[uid]
                self._tries[uid] = (priority, tries + 1, since)
                return uid
        return None

    def park(self, uid: str, now: float) -> None:
        """Let a pod that fits nowhere wait for a change."""
        if uid in self._tries:
            self._parked[uid] = now

    def retry(self, uid: str, now: float) -> None:
        """Try a pod again after its back-off, whatever happens."""
        if uid in self._tries:
            self._back_off(uid, now)

    def wake(self, now: float) -> None:
        """Something changed: parked pods go on as soon as the back-off since they were parked is over."""
        parked, self._parked = self._parked, {}
        for uid, since in parked.items():
            self._back_off(uid, since)
        self._advance(now)

    def next_s(self) -> float:
        """Return when somebody may be ready, infinite if nobody is going to be by himself."""
        if any(self._places.get(uid) == ticket for _, _, ticket, uid in self._ready):
            return -math.inf
        backing_off = self._backing_off[0][0] if self._backing_off else math.inf
        return min(backing_off, min(self._parked.values(), default=math.inf) + LONGEST_PARKED_S)

    def _back_off(self, uid: str, since: float) -> None:
        tries = max(self._tries[uid][1], 1)
        wait_s = min(FIRST_BACKOFF_S * 2 ** min(tries - 1, 16), LONGEST_BACKOFF_S)
        ticket = self._places[uid] = next(self._ticket)
        heapq.heappush(self._backing_off, (since + wait_s, ticket, uid))

    def _make_ready(self, uid: str) -> None:
        priority, _, since = self._tries[uid]
        ticket = self._places[uid] = next(self._ticket)
        heapq.heappush(self._ready, (-priority, since, ticket, uid))

    def _advance(self, now: float) -> None:
        for uid in [uid for uid, since in self._parked.items() if now - since >= LONGEST_PARKED_S]:
            del self._parked[uid]
            self._make_ready(uid)
        while self._backing_off and self._backing_off[0][0] <= now:
            _, ticket, uid = heapq.heappop(self._backing_off)
            if self._places.get(uid) == ticket:
                self._make_ready(uid)
