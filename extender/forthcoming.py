"""Binds to come: where pods that were just scored will most likely go.

kube-scheduler filters and scores the next pod before the bind of the last one reaches us, so two pods in a row look at
the same books and choose the same hole; the second bind is refused, and its pod starts all over. What prioritize (or a
filter that leaves one node) answered is remembered here until that bind has booked, for two seconds at most, and the
scores of other pods look at it as if it were booked. It is never in the books and never a reason to refuse a node.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from extender.nominees import Shares, add_shares
from scoring.fleet import Fleet
from scoring.outlook import Outlook
from scoring.pipeline import PlacedPod, allocation_on
from scoring.registry import Policy
from scoring.request import PodRequest

_KEPT = 64
_KEPT_S = 2.0


@dataclass(slots=True)
class _Bind:
    node: str
    request: PodRequest
    policy: Policy
    until: float
    booked: dict[int, tuple[int, int, int]] | None = field(default=None)
    """Slot -> MiB, thousandths and sharers; worked out when somebody first asks."""


class Forthcoming:
    """Binds to come by pod UID, bounded in number and time; ``is_booked`` tells of a UID whether the books have it."""

    def __init__(self, is_booked: Callable[[str], bool]) -> None:
        self._is_booked = is_booked
        self._binds: OrderedDict[str, _Bind] = OrderedDict()

    def __len__(self) -> int:
        return len(self._binds)

    def expect(self, uid: str, node: str, request: PodRequest, policy: Policy, now: float) -> None:
        """Remember where a pod will most likely be bound; ``now`` is in seconds of the clock that others ask with."""
        self._binds.pop(uid, None)
        self._binds[uid] = _Bind(node, request, policy, now + _KEPT_S)
        if len(self._binds) > _KEPT:
            self._binds.popitem(last=False)

    def end(self, uid: str) -> None:
        """Forget a pod: its bind was answered."""
        self._binds.pop(uid, None)

    def shares_of_others(self, uid: str, fleet: Fleet, outlook: Outlook, now: float) -> Shares:
        """Return what the binds of other pods will most likely book."""
        self._forget_old(now)
        sums: Shares = {}
        for other, bind in self._binds.items():
            row = fleet.rows.get(bind.node)
            if other == uid or row is None or self._is_booked(other):
                continue
            if bind.booked is None:
                bind.booked = _placed(bind, fleet, row, sums, outlook)
            add_shares(sums, {(row, slot): amounts for slot, amounts in bind.booked.items()})
        return sums

    def _forget_old(self, now: float) -> None:
        while self._binds:
            uid, bind = next(iter(self._binds.items()))
            if bind.until > now:
                return
            del self._binds[uid]


def _placed(bind: _Bind, fleet: Fleet, row: int, taken: Shares, outlook: Outlook) -> dict[int, tuple[int, int, int]]:
    """Return the slots that the pod would get beside those placed before it; none where it no longer fits."""
    here = {(0, slot): amounts for (at, slot), amounts in taken.items() if at == row}
    node = fleet.take(np.array([row])).with_shares(here)
    placed = allocation_on(bind.request, node, 0, bind.policy, outlook)
    if not isinstance(placed, PlacedPod):
        return {}
    return {slot: (mib, milli, 1) for slot, mib, milli in placed.booked}
