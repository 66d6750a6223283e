"""Binds to come: where pods that were just scored will most likely go.

kube-scheduler filters and scores the next pod before the bind of the last one reaches us, so two pods in a row look at
the same books and choose the same hole; the second bind is refused, and its pod starts all over. What prioritize (or a
filter that leaves one node) answered is remembered here until that bind has booked, for two seconds at most, and the
scores of other pods look at it as if it were booked. It is never in the books and never a reason to refuse a node.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from extender.bounded import keep
from extender.nominees import Shares, add_shares
from scoring.fleet import Fleet
from scoring.outlook import Outlook
from scoring.pipeline import PlacedPod, allocation_on
from scoring.registry import Policy
from scoring.request import PodRequest
from scoring.status import Verdict

_KEPT = 64
_KEPT_S = 2.0


@dataclass(slots=True)
class _Bind:
    node: str
    request: PodRequest
    policy: Policy
    until: float
    uuids: tuple[str, ...] = ()
    """The node's devices by slot when ``placed`` was worked out: slots of a node with others mean other devices."""
    placed: PlacedPod | Verdict | None = None
    """Worked out when somebody first asks, beside those expected before it."""


class Forthcoming:
    """Binds to come by pod UID, bounded in number and time; ``is_booked`` tells of a UID whether the books have it."""

    def __init__(self, is_booked: Callable[[str], bool]) -> None:
        self._is_booked = is_booked
        self._binds: OrderedDict[str, _Bind] = OrderedDict()

    def __len__(self) -> int:
        return len(self._binds)

    def expect(self, uid: str, node: str, request: PodRequest, policy: Policy, now: float) -> None:
        """Remember where a pod will most likely be bound; ``now`` is in seconds of the clock that others ask with."""
        keep(self._binds, uid, _Bind(node, request, policy, now + _KEPT_S), _KEPT)

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
            if bind.placed is None or bind.uuids != fleet.uuids[row]:
                bind.uuids = fleet.uuids[row]
                bind.placed = allocation_on(bind.request, fleet, row, bind.policy, outlook, sums)
            if isinstance(bind.placed, PlacedPod):
                add_shares(sums, bind.placed.shares(row))
        return sums

    def _forget_old(self, now: float) -> None:
        while self._binds:
            uid, bind = next(iter(self._binds.items()))
            if bind.until > now:
                return
            del self._binds[uid]
