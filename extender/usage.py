"""Who booked GPUs and does not use them, who uses more than booked, and GPU hours booked and idle by namespace.

Fed from the store every half minute, a few nodes at a time, so that no decision waits. A pod counts as idle on a device
while its measured share of SM time is below ``IDLE_RATIO``; where the driver does not tell it for single processes, the
device's own utilisation speaks for a pod that is alone there, and of others nothing is said. What is not known is never
idle. A GPU hour is one whole device for an hour; a share counts with the greater of its two parts, because that is what
nobody else can have. Sums begin with the process.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from extender.clock import Clock
from extender.holdings import DeviceBooking, Holding, Phase
from extender.noderecord import NodeRecord
from extender.store import ClusterStore

IDLE_RATIO = 0.05
"""The usual bound of "idle while allocated" alerts (node-side.md 4.4)."""
OVER_MIB = 64
OVER_RATIO = 0.05
INTERVAL_S = 30.0
IDLE_AFTER_S = 3600.0
_AT_ONCE = 10
"""Nodes between two turns of the event loop: with eight shares each about a millisecond."""
_MOST_NAMESPACES = 1000
_MOST_TOLD = 200
_GAP_S = 300.0
"""After a longer gap nothing is known of the time between, and nothing is counted for it."""
_HOUR_S = 3600.0
OTHERS = "(others)"


class Holder(msgspec.Struct, frozen=True, gc=False):
    """One pod on one device: booked beside measured. ``used_ratio`` is SM time, 0..1; None where it is not known.

    A struct, because one is made for every share twice a minute.
    """

    namespace: str
    pod: str
    node: str
    uuid: str
    booked_mib: int
    booked_milli: int
    used_mib: int
    used_ratio: float | None
    is_shared: bool = False
    idle_s: float = 0.0

    @property
    def is_over(self) -> bool:
        """Return whether it uses more than it booked, beyond what measuring blurs; time only on a shared device."""
        over_time = self.used_ratio is not None and self.used_ratio > self.booked_milli / 1000 + OVER_RATIO
        return self.used_mib > self.booked_mib + OVER_MIB or (over_time and self.is_shared)


@dataclass(slots=True)
class Hours:
    """GPU hours of a namespace since the process began."""

    booked: float = 0.0
    idle: float = 0.0


@dataclass(frozen=True, slots=True)
class UsageView:
    """``idle`` are pods idle for at least ``idle_after_s``, the longest first; ``over`` the greatest excess first."""

    since_s: float
    idle_after_s: float
    idle: tuple[Holder, ...]
    over: tuple[Holder, ...]
    hours: Mapping[str, Hours]


@dataclass(slots=True)
class _Seen:
    at: float
    idle_since: float | None
    holder: Holder


@dataclass(slots=True)
class UsageTracker:
    """Watches holdings over time; bounded by the holdings there are, and by ``_MOST_NAMESPACES``."""

    store: ClusterStore
    clock: Clock
    _seen: dict[tuple[str, str], _Seen] = field(default_factory=dict)
    _hours: OrderedDict[str, Hours] = field(default_factory=OrderedDict)
    _began: float | None = None
    _idle: int = 0
    _over: int = 0
    _outstanding: tuple[int, int] = (0, 0)

    async def round(self) -> None:
        """Look at every node once, a few at a time; forget holdings that are gone."""
        now = self.clock.now()
        self._began = now if self._began is None else self._began
        met: set[tuple[str, str]] = set()
        self._idle = self._over = 0
        for number, record in enumerate(self.store.nodes()):
            met |= self._look(record, now)
            if number % _AT_ONCE == _AT_ONCE - 1:
                await self.clock.sleep(0)
        for key in self._seen.keys() - met:
            del self._seen[key]
        self._outstanding = self._idle, self._over

    def outstanding(self) -> tuple[int, int]:
        """Return how many shares were idle for ``IDLE_AFTER_S``, and how many over, at the last round."""
        return self._outstanding

    def hours(self) -> Mapping[str, Hours]:
        """Return GPU hours by namespace so far; not to be changed by the caller."""
        return self._hours

    def view(self, idle_after_s: float = IDLE_AFTER_S) -> UsageView:
        """Return what stands out now."""
        now = self.clock.now()
        holders = [_with_idle(seen, now) for seen in self._seen.values()]
        idle = sorted((each for each in holders if each.idle_s >= idle_after_s), key=_by_idleness)
        over = sorted((each for each in holders if each.is_over), key=_by_excess)
        since_s = 0.0 if self._began is None else now - self._began
        return UsageView(since_s, idle_after_s, tuple(idle[:_MOST_TOLD]), tuple(over[:_MOST_TOLD]), dict(self._hours))

    def _look(self, record: NodeRecord, now: float) -> set[tuple[str, str]]:
        met = set()
        measured = _measured(record) if record.is_fresh else None
        for holding in self.store.ledger.on_node(record.name):
            if holding.phase is not Phase.CONFIRMED:
                continue
            for booking in holding.booked:
                key = holding.pod.uid, booking.uuid
                met.add(key)
                self._count(key, holding, booking, measured, now)
        return met

    def _count(
        self, key: tuple[str, str], holding: Holding, booking: DeviceBooking, measured: _Measured | None, now: float
    ) -> None:
        before = self._seen.get(key)
        alone = len(self.store.ledger.device(holding.node, booking.uuid).uids) == 1
        mib, ratio = (0, None) if measured is None else measured.of(*key, alone=alone)
        is_idle = ratio is not None and ratio < IDLE_RATIO
        idle_since = now if is_idle else None
        if before is not None:
            elapsed_s = now - before.at if now - before.at <= _GAP_S else 0.0
            idle_since = before.idle_since if is_idle and before.idle_since is not None else idle_since
            self._add(holding, booking, elapsed_s, is_idle=is_idle and before.idle_since is not None)
        pod = holding.pod
        holder = Holder(
            pod.namespace,
            pod.name,
            holding.node,
            booking.uuid,
            booking.memory_mib,
            booking.compute_milli,
            mib,
            ratio,
            is_shared=not alone,
        )
        self._seen[key] = _Seen(now, idle_since, holder)
        self._idle += idle_since is not None and now - idle_since >= IDLE_AFTER_S
        self._over += holder.is_over

    def _add(self, holding: Holding, booking: DeviceBooking, elapsed_s: float, *, is_idle: bool) -> None:
        name = holding.pod.namespace
        if name not in self._hours and len(self._hours) >= _MOST_NAMESPACES:
            name = OTHERS
        hours = self._hours.setdefault(name, Hours())
        amount = self._part(holding.node, booking) * elapsed_s / _HOUR_S
        hours.booked += amount
        hours.idle += amount if is_idle else 0.0

    def _part(self, node: str, booking: DeviceBooking) -> float:
        """Return how much of a whole device a booking keeps from others, 0..1."""
        record = self.store.node(node)
        facts = record.devices.get(booking.uuid) if record is not None else None
        memory = booking.memory_mib / facts.capacity_mib if facts is not None and facts.capacity_mib else 0.0
        return min(max(memory, booking.compute_milli / 1000), 1.0)


@dataclass(frozen=True, slots=True)
class _Measured:
    """What one report says: (pod UID, device) -> MiB and SM ratio, and each device's own utilisation."""

    use: Mapping[tuple[str, str], tuple[int, float | None]]
    devices: Mapping[str, float | None]

    def of(self, uid: str, uuid: str, *, alone: bool) -> tuple[int, float | None]:
        """Return MiB and SM ratio of one pod on one device; the ratio None where nobody can tell."""
        mib, ratio = self.use.get((uid, uuid), (0, None))
        if ratio is None and alone:
            ratio = self.devices.get(uuid)
        return mib, ratio


def _measured(record: NodeRecord) -> _Measured | None:
    report = record.report
    if report is None:
        return None
    use: dict[tuple[str, str], tuple[int, float | None]] = {}
    for each in report.usage:
        mib, ratio = use.get((each.pod_uid, each.uuid), (0, None))
        known = each.sm_ratio if ratio is None else ratio + (each.sm_ratio or 0.0)
        use[each.pod_uid, each.uuid] = mib + each.memory_mib, known
    return _Measured(use, {device.uuid: device.utilisation for device in report.devices})


def _with_idle(seen: _Seen, now: float) -> Holder:
    return (
        seen.holder if seen.idle_since is None else msgspec.structs.replace(seen.holder, idle_s=now - seen.idle_since)
    )


def _by_idleness(holder: Holder) -> tuple[float, str, str, str]:
    return -holder.idle_s, holder.namespace, holder.pod, holder.uuid


def _by_excess(holder: Holder) -> tuple[int, str, str, str]:
    return holder.booked_mib - holder.used_mib, holder.namespace, holder.pod, holder.uuid
