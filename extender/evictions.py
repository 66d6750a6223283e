"""Evictions that preempt allowed and that our books do not show whole yet: nobody else is evicted meanwhile.

kube-scheduler deletes the victims, sees their end in a watch of its own, and asks filter again some milliseconds later.
Where our watch is behind, filter still refuses, and the scheduler asks preempt again: without this memory a second set
of pods would die for room that is already there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from extender.bounded import keep
from extender.errors import EvictionUnderWay
from extender.holdings import Holding
from extender.ledger import Ledger
from extender.wire import Victims

LAG_S = 5.0
"""For how long an eviction of which our books show nothing is believed; watches lag by milliseconds, seldom seconds."""
TERMINATING_S = 60.0
"""For how long victims that are on their way out are waited for; a node that is gone never ends its pods."""
_LIMIT = 1024


@dataclass(frozen=True, slots=True)
class _Allowed:
    """When an eviction was allowed (monotonic seconds), and the victims' UIDs by node: the scheduler takes one node."""

    at: float
    victims: Mapping[str, tuple[str, ...]]


class Evictions:
    """The last answer for each pod that others may be evicted for (bounded: the oldest goes)."""

    def __init__(self) -> None:
        self._allowed: OrderedDict[str, _Allowed] = OrderedDict()

    def allow(self, uid: str, kept: Mapping[str, Victims], now: float) -> None:
        """Remember what preempt answers for a pod; an answer without nodes evicts nobody."""
        if kept:
            keep(self._allowed, uid, _Allowed(now, {node: victims.uids() for node, victims in kept.items()}), _LIMIT)
        else:
            self._allowed.pop(uid, None)

    def check(self, uid: str, ledger: Ledger, now: float) -> None:
        """Raise EvictionUnderWay while the books may not show yet what was evicted for this pod.

        They do when all victims of one node are gone, whichever node the scheduler took.
        """
        allowed = self._allowed.get(uid)
        if allowed is None:
            return
        held = {node: _still_held(uids, ledger) for node, uids in allowed.victims.items()}
        if all(held.values()):
            is_ending = any(holding.is_terminating for holdings in held.values() for holding in holdings)
            if now - allowed.at < (TERMINATING_S if is_ending else LAG_S):
                raise EvictionUnderWay(min(held))
        del self._allowed[uid]


def _still_held(uids: tuple[str, ...], ledger: Ledger) -> tuple[Holding, ...]:
    return tuple(holding for holding in map(ledger.get, uids) if holding is not None)
