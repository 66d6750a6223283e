"""Pods for which kube-scheduler evicted others: they keep the place that they were promised.

In-tree filters protect a nominated pod's room for what Kubernetes counts; for single devices nobody does that but us.
A pod of lower or equal priority sees the promised shares as taken. Where victims are still terminating, the nominee is
placed as if they were gone, so that what one of them frees early is not given away.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from extender.holdings import Holding, PodIdentity
from scoring.fleet import Fleet
from scoring.outlook import Outlook
from scoring.pipeline import PlacedPod, allocation_on
from scoring.registry import Policy
from scoring.request import PodRequest

_LIMIT = 1024

Shares = dict[tuple[int, int], tuple[int, int, int]]
"""(row, slot) -> MiB, thousandths and sharers to add, as ``Fleet.with_shares`` takes them."""


@dataclass(frozen=True, slots=True)
class Nominee:
    """A pending pod that was promised a place on a node."""

    pod: PodIdentity
    node: str
    request: PodRequest


class Nominees:
    """The nominated pods (bounded: the oldest promise goes), and what they keep from others."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._by_uid: OrderedDict[str, Nominee] = OrderedDict()
        self._placed: tuple[int, tuple[tuple[Nominee, Shares], ...]] | None = None

    def __len__(self) -> int:
        return len(self._by_uid)

    def nominate(self, nominee: Nominee) -> None:
        """Remember a promise; a newer one for the same pod replaces it."""
        if self._by_uid.get(nominee.pod.uid) == nominee:
            return
        self._by_uid[nominee.pod.uid] = nominee
        self._placed = None
        if len(self._by_uid) > _LIMIT:
            self._by_uid.popitem(last=False)

    def withdraw(self, uid: str) -> None:
        """Forget the promise to a pod, if there is one."""
        if self._by_uid.pop(uid, None) is not None:
            self._placed = None

    def ahead_of(self, pod: PodIdentity) -> tuple[PodIdentity, ...]:
        """Return the nominated pods whose promised room ``pod`` must see as taken."""
        others = (nominee.pod for nominee in self._by_uid.values() if nominee.pod.uid != pod.uid)
        return tuple(other for other in others if other.priority >= pod.priority)

    def kept_from(self, pod: PodIdentity, fleet: Fleet, on_node: Callable[[str], Iterable[Holding]]) -> Shares:
        """Return the shares that ``pod`` must see as taken: those of other nominees of its priority or above."""
        if not self._by_uid:
            return {}
        kept: Shares = {}
        for nominee, shares in self._places(fleet, on_node):
            if nominee.pod.priority >= pod.priority and nominee.pod.uid != pod.uid:
                add_shares(kept, shares)
        return kept

    def _places(self, fleet: Fleet, on_node: Callable[[str], Iterable[Holding]]) -> tuple[tuple[Nominee, Shares], ...]:
        """Place every nominee, the highest priority first; remembered while the fleet stays as it is."""
        if self._placed is None or self._placed[0] != fleet.generation:
            taken: Shares = {}
            placed = []
            for nominee in sorted(self._by_uid.values(), key=lambda entry: (-entry.pod.priority, entry.pod.uid)):
                shares = self._place(nominee, fleet, taken, tuple(on_node(nominee.node)))
                add_shares(taken, shares)
                placed.append((nominee, shares))
            self._placed = fleet.generation, tuple(placed)
        return self._placed[1]

    def _place(self, nominee: Nominee, fleet: Fleet, taken: Shares, holdings: tuple[Holding, ...]) -> Shares:
        row = fleet.rows.get(nominee.node)
        if row is None or any(holding.pod.uid == nominee.pod.uid for holding in holdings):
            return {}
        slots = {uuid: slot for slot, uuid in enumerate(fleet.uuids[row])}
        changes = dict(taken)
        for holding in holdings:
            if holding.is_terminating:
                add_shares(changes, freed_by(holding, row, slots))
        placed = allocation_on(nominee.request, fleet, row, self._policy, Outlook.empty(), changes)
        return placed.shares(row) if isinstance(placed, PlacedPod) else {}


def freed_by(holding: Holding, row: int, slots: Mapping[str, int]) -> Shares:
    """Return what the end of a holding changes, on the devices that ``slots`` knows."""
    return {
        (row, slots[booking.uuid]): (-booking.memory_mib, -booking.compute_milli, -1)
        for booking in holding.booked
        if booking.uuid in slots
    }


def add_shares(sums: Shares, shares: Shares) -> None:
    """Add the second to the first."""
    for at, (mib, milli, sharers) in shares.items():
        before = sums.get(at, (0, 0, 0))
        sums[at] = before[0] + mib, before[1] + milli, before[2] + sharers
