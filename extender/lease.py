"""Which replica acts: told by kube-scheduler's lease in the paired mode, by a lease of ours in the stand-alone mode.

Wall clocks are never compared: times inside a lease are only looked at for whether they changed. What is known is when
a read was *sent* and when its answer was *here*, on our own monotonic clock:

- a renewal that one read does not show and the next one does was made after the first was sent. Nobody else takes the
  lease for its duration from then on, so that is how long our pod may act (``PairedLease``);
- a holder that did not renew for the duration since we first *saw* its last renewal has lost the lease (``Election``).

The two differ on the safe side by the time between two reads. The durations are shortened by what two machines' clocks
may drift apart.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol, TypeVar

import structlog

from extender.clock import Clock
from extender.errors import KubeError, KubeRefused
from extender.kubeapi import Lease
from extender.tenure import Tenure

_LOG = structlog.get_logger(__name__)
_T = TypeVar("_T")
_CONFLICT = 409
CLOCK_DRIFT = 0.01
"""Monotonic clocks of two machines run apart by less than this part (crystal oscillators: some 1e-4)."""


class LeaseStore(Protocol):
    """Reads and writes leases; every method raises KubeError children."""

    async def get_lease(self, namespace: str, name: str) -> Lease | None:
        """Read a lease; None if there is none of that name."""

    async def create_lease(self, lease: Lease) -> Lease:
        """Create a lease; KubeRefused 409 where one exists."""

    async def update_lease(self, lease: Lease) -> Lease:
        """Replace a lease if its ``resource_version`` is still current; KubeRefused 409 where it is not."""


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """Which lease, and its times in seconds.

    ``duration_s``  for which a renewal holds, used where we write the lease; at most this is trusted where we read it
    ``retry_s``     between two rounds
    ``timeout_s``   for one call to the API server
    """

    namespace: str
    name: str
    duration_s: int = 10
    retry_s: float = 1.0
    timeout_s: float = 1.5


class PairedLease:
    """Watches kube-scheduler's lease and tells whether our own pod's kube-scheduler holds it. Writes nothing.

    kube-scheduler holds as ``<host name>_<random>``; both containers of a pod have the pod's host name.
    """

    def __init__(self, store: LeaseStore, terms: LeaseTerms, clock: Clock, tenure: Tenure, host_name: str) -> None:
        self._store = store
        self._terms = terms
        self._clock = clock
        self._tenure = tenure
        self._host_name = host_name
        self._last: tuple[float, tuple[str, str]] | None = None

    def may_act(self) -> bool:
        """Return whether this replica may act on the cluster now."""
        return self._tenure.may_act()

    async def run(self) -> None:
        """Read the lease again and again until cancelled."""
        await _repeat(self.round, self._terms.retry_s, self._clock)

    async def round(self) -> None:
        """Read the lease once; a read that fails leaves the tenure to run out."""
        sent_at = self._clock.now()
        lease = await _within(self._terms.timeout_s, self._store.get_lease(self._terms.namespace, self._terms.name))
        if lease is None or not self._is_ours(lease):
            self._last = None if lease is None else (sent_at, (lease.holder, lease.renew_time))
            self._tenure.end()
            return
        renewal = (lease.holder, lease.renew_time)
        if self._last is not None and self._last[1] != renewal:
            duration_s = min(lease.duration_s, self._terms.duration_s)
            self._tenure.hold_until(self._last[0] + duration_s * (1 - CLOCK_DRIFT))
        if not self._tenure.is_held():
            self._tenure.end()
        self._last = (sent_at, renewal)

    async def release(self) -> None:
        """Act no more; the lease itself is kube-scheduler's."""
        self._tenure.end()

    def _is_ours(self, lease: Lease) -> bool:
        return lease.holder.rpartition("_")[0] == self._host_name


class Election:
    """Elects one active replica with a lease of ours. Every process is a candidate of its own, also after a restart."""

    def __init__(self, store: LeaseStore, terms: LeaseTerms, clock: Clock, tenure: Tenure, host_name: str) -> None:
        self._store = store
        self._terms = terms
        self._clock = clock
        self._tenure = tenure
        self.candidate = f"{host_name}_{uuid.uuid4()}"
        self._held: Lease | None = None
        self._seen: tuple[tuple[str, str], float] = (("", ""), float("inf"))

    def may_act(self) -> bool:
        """Return whether this replica may act on the cluster now."""
        return self._tenure.may_act()

    async def run(self) -> None:
        """Stand for election, and renew while elected, until cancelled."""
        await _repeat(self.round, self._terms.retry_s, self._clock)

    async def round(self) -> None:
        """Renew, take or look at the lease once; a call that fails leaves the tenure to run out."""
        sent_at = self._clock.now()
        try:
            written = await self._write(sent_at)
        except KubeRefused as refusal:
            if refusal.status != _CONFLICT:
                raise
            self._held = None  # Somebody wrote in between: look again before anything else.
            return
        if written is not None:
            self._held = written
            self._tenure.hold_until(sent_at + self._terms.duration_s * (1 - CLOCK_DRIFT))

    async def release(self) -> None:
        """Act no more, and let another take the lease at once. Raises nothing: the lease also runs out by itself."""
        self._tenure.end()
        held, self._held = self._held, None
        if held is None:
            return
        given_up = replace(held, holder="", duration_s=1, renew_time=self._stamp())
        try:
            await _within(self._terms.timeout_s, self._store.update_lease(given_up))
        except (KubeError, TimeoutError) as error:
            _LOG.warning("lease_not_released", error=str(error))

    async def _write(self, now: float) -> Lease | None:
        """Return the lease as written, None where it is another's; raise KubeError or TimeoutError."""
        stamp = self._stamp()
        if self._held is not None:
            renewed = replace(self._held, renew_time=stamp)
            return await _within(self._terms.timeout_s, self._store.update_lease(renewed))
        terms = self._terms
        found = await _within(terms.timeout_s, self._store.get_lease(terms.namespace, terms.name))
        if found is None:
            first = Lease(terms.namespace, terms.name, self.candidate, terms.duration_s, stamp, stamp, 0)
            return await _within(terms.timeout_s, self._store.create_lease(first))
        if found.holder not in ("", self.candidate) and not self._has_run_out(found, now):
            self._tenure.end()
            return None
        taken = replace(found, holder=self.candidate, duration_s=terms.duration_s, renew_time=stamp)
        if found.holder != self.candidate:
            taken = replace(taken, acquire_time=stamp, transitions=found.transitions + 1)
        return await _within(terms.timeout_s, self._store.update_lease(taken))

    def _has_run_out(self, lease: Lease, now: float) -> bool:
        """Return whether the holder has not renewed for the lease's duration since we first saw its last renewal."""
        renewal = (lease.holder, lease.renew_time)
        if self._seen[0] != renewal:
            self._seen = (renewal, self._clock.now())
        return now >= self._seen[1] + max(lease.duration_s, 1) * (1 + CLOCK_DRIFT)

    def _stamp(self) -> str:
        return datetime.fromtimestamp(self._clock.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def _repeat(step: Callable[[], Awaitable[None]], seconds: float, clock: Clock) -> None:
    """Repeat a step until cancelled; what the API server refuses or does not answer is logged and tried again."""
    while True:
        try:
            await step()
        except (KubeError, TimeoutError) as error:
            _LOG.warning("lease_round_failed", error=str(error) or type(error).__name__)
        await clock.sleep(seconds)


async def _within(seconds: float, call: Awaitable[_T]) -> _T:
    async with asyncio.timeout(seconds):
        return await call
