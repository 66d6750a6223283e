"""Pushes reports to every replica of the extender: latest wins, nothing is ever queued.

The agent puts its newest report on the desk. One courier an address takes whatever lies there when its own pace says
so: a heartbeat, or at once when the news matters. A replica that is slow, down or wrong holds nobody else up. Names
are resolved again every half minute, so couriers come and go with the replicas.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from node_agent.endpoint import Connection, Credentials, Endpoint, PushError
from node_agent.pace import Pace, PaceTimes
from node_agent.report import Answer, Booking, Report
from node_agent.significance import matters

RESOLVE_EVERY_S = 30.0
BOOKINGS_STALE_S = 120.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Heard:
    """What the replicas answered, merged: a share that any of them books is ours."""

    bookings: tuple[Booking, ...] = ()
    cordoned: frozenset[str] = frozenset()


@dataclass(slots=True)
class Tally:
    """Counts for the exporter; ``outcomes`` has ``ok`` and the kinds of PushError."""

    outcomes: Counter[str] = field(default_factory=Counter)
    last_success_s: float | None = None


class Desk:
    """Holds the newest report and a counter of news; couriers wait on it."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._report: Report | None = None
        self._news = 0
        self._is_closed = False

    def put(self, report: Report, *, is_urgent: bool) -> None:
        """Replace the report; urgent ones wake the couriers."""
        with self._condition:
            self._report = report
            if is_urgent:
                self._news += 1
                self._condition.notify_all()

    def close(self) -> None:
        """Send every courier home."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()

    def wake(self) -> None:
        """Make the couriers look whether they are still wanted."""
        with self._condition:
            self._condition.notify_all()

    def take(self, pace: Pace, seen_news: int, is_wanted: threading.Event) -> tuple[Report, int] | None:
        """Wait until a push is due and return the report of that moment with the news it covers; None at the end."""
        with self._condition:
            while not self._is_closed and is_wanted.is_set():
                wait_s = pace.due_s(is_urgent=self._news > seen_news) - time.monotonic()
                if wait_s <= 0 and self._report is not None:
                    return self._report, self._news
                self._condition.wait(max(wait_s, 0.05) if self._report is not None else None)
        return None


class Courier:
    """One thread that keeps one address up to date."""

    def __init__(self, connection: Connection, desk: Desk, times: PaceTimes, tally: Tally, address: str) -> None:
        self.is_wanted = threading.Event()
        self.is_wanted.set()
        self.heard: Answer | None = None
        self.heard_at_s = 0.0
        self._connection = connection
        self._desk = desk
        self._pace = Pace(times, random.random, time.monotonic())
        self._tally = tally
        self._address = address
        self._generation: int | None = None
        self._thread = threading.Thread(target=self._run, name=f"courier-{address}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread to end."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        news = 0
        while (taken := self._desk.take(self._pace, news, self.is_wanted)) is not None:
            report, seen = taken
            if self._push(report):
                news = seen
        self._connection.close()

    def _push(self, report: Report) -> bool:
        try:
            answer = self._connection.push(replace(report, bookings_generation=self._generation))
        except PushError as problem:
            # The other side may be a new process whose generations mean something else: ask for all bookings again.
            self._generation = None
            self._tally.outcomes[problem.kind] += 1
            self._pace.failed(time.monotonic())
            if self._pace.failures in {1, 10} or self._pace.failures % 100 == 0:
                logger.warning("push not taken, %d in a row: %s", self._pace.failures, problem)
            return False
        self._take_answer(answer)
        return True

    def _take_answer(self, answer: Answer) -> None:
        now_s = time.monotonic()
        bookings = answer.bookings
        if bookings is None and self.heard is not None:
            bookings = self.heard.bookings
        self.heard, self.heard_at_s = replace(answer, bookings=bookings), now_s
        self._generation = answer.bookings_generation
        self._tally.outcomes["ok"] += 1
        self._tally.last_success_s = now_s
        self._pace.set_heartbeat(answer.heartbeat_s)
        self._pace.succeeded(now_s)


class Publisher:
    """The agent's side of the wire. ``offer`` never blocks on the network."""

    def __init__(
        self,
        endpoints: Iterable[Endpoint],
        credentials: Credentials,
        times: PaceTimes | None = None,
        timeout_s: float = 5.0,
    ) -> None:
        self.tally = Tally()
        self._endpoints = tuple(endpoints)
        self._credentials = credentials
        self._times = times or PaceTimes()
        self._timeout_s = timeout_s
        self._desk = Desk()
        self._couriers: dict[tuple[Endpoint, str], Courier] = {}
        self._lock = threading.Lock()
        self._last_news: Report | None = None
        self._is_stopping = threading.Event()
        self._resolver = threading.Thread(target=self._keep_resolving, name="resolver", daemon=True)

    def start(self) -> None:
        """Begin resolving and pushing."""
        self._resolver.start()

    def stop(self) -> None:
        """End all threads; a push under way is given its timeout."""
        self._is_stopping.set()
        self._desk.close()
        self._resolver.join(self._timeout_s)
        for courier in self._all_couriers():
            courier.join(self._timeout_s)

    def offer(self, report: Report) -> None:
        """Make this the report that is pushed next; at once if it matters."""
        is_urgent = matters(self._last_news, report)
        if is_urgent:
            self._last_news = report
        self._desk.put(report, is_urgent=is_urgent)

    def heard(self) -> Heard:
        """Return what the replicas answered of late, merged; a replica silent for two minutes no longer counts."""
        oldest_s = time.monotonic() - BOOKINGS_STALE_S
        recent = [each for each in self._all_couriers() if each.heard is not None and each.heard_at_s >= oldest_s]
        merged = {
            (booking.pod_uid, booking.container, booking.uuid): booking
            for courier in sorted(recent, key=lambda each: each.heard_at_s)
            for booking in (courier.heard.bookings or () if courier.heard else ())
        }
        cordoned = frozenset(uuid for courier in recent if courier.heard for uuid in courier.heard.cordoned)
        return Heard(tuple(merged.values()), cordoned)

    def _all_couriers(self) -> list[Courier]:
        with self._lock:
            return list(self._couriers.values())

    def _keep_resolving(self) -> None:
        while not self._is_stopping.is_set():
            wait_s = RESOLVE_EVERY_S
            for endpoint in self._endpoints:
                try:
                    self._settle(endpoint, endpoint.addresses())
                except OSError as problem:
                    self.tally.outcomes["resolve"] += 1
                    logger.warning("name %s not resolved: %s", endpoint.host, problem)
                    wait_s = 3.0
            self._is_stopping.wait(wait_s)

    def _settle(self, endpoint: Endpoint, addresses: list[str]) -> None:
        """Hire a courier for each new address and let those go whose address is gone."""
        with self._lock:
            for address in addresses:
                if (endpoint, address) not in self._couriers:
                    connection = Connection(endpoint, address, self._credentials, self._timeout_s)
                    courier = Courier(connection, self._desk, self._times, self.tally, address)
                    self._couriers[endpoint, address] = courier
                    courier.start()
            for key in [key for key in self._couriers if key[0] == endpoint and key[1] not in addresses]:
                self._couriers.pop(key).is_wanted.clear()
        self._desk.wake()
