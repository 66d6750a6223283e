"""For how long this replica may act on the cluster: arithmetic on monotonic time, shared by both kinds of election.

::

    nothing known ──hold_until(t)──> entering: wait out the bind deadline, then list consistently ──> acting
         ^                              │                                                               │
         └──────── now >= t, or end() ──┴───────────────────────────────────────────────────────────────┘

The API server arbitrates per pod, not per device. So whoever takes over waits until no Binding of the one before can
be under way, and reads what it wrote, before its own first Binding. ``may_act`` fences itself: it compares with the
clock whenever it is asked, so a process that was frozen knows at once that its time is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from extender.clock import Clock
from extender.errors import ExtenderError

_LOG = structlog.get_logger(__name__)
_NEVER = float("-inf")
_AGAIN_S = 0.5


class Tenure:
    """Tells whether this replica may act.

    ``wait_s``    seconds for which a Binding of an earlier holder may still be under way: the bind deadline
    ``catch_up``  returns when a consistent list (never of resourceVersion 0) that began after the call is in the books
    """

    def __init__(self, clock: Clock, wait_s: float, catch_up: Callable[[], Awaitable[None]]) -> None:
        self._clock = clock
        self._wait_s = wait_s
        self._catch_up = catch_up
        self._until = _NEVER
        self._has_caught_up = False
        self._entering: asyncio.Task[None] | None = None

    def may_act(self) -> bool:
        """Return whether this replica holds the lease now and knows what the holder before wrote."""
        return self._has_caught_up and self.is_held()

    def is_held(self) -> bool:
        """Return whether this replica holds the lease now, whether or not it may act yet."""
        return self._clock.now() < self._until

    def hold_until(self, until: float) -> None:
        """Note that nobody else holds the lease before ``until`` (monotonic seconds); after a gap all begins anew."""
        if until <= self._clock.now():
            self.end()
            return
        if not self.is_held():
            self.end()
            self._until = until
            self._entering = asyncio.create_task(self._enter(), name="enter-tenure")
        self._until = max(self._until, until)

    def end(self) -> None:
        """Note that the lease is somebody else's, or nobody's."""
        if self._has_caught_up:
            _LOG.warning("tenure_ended")
        self._until = _NEVER
        self._has_caught_up = False
        if self._entering is not None:
            self._entering.cancel()
            self._entering = None

    async def _enter(self) -> None:
        await self._clock.sleep(self._wait_s)
        while True:
            try:
                await self._catch_up()
            except ExtenderError as error:
                _LOG.warning("catch_up_failed", error=str(error))
                await self._clock.sleep(_AGAIN_S)
            except Exception:  # noqa: BLE001 - the edge of a task: a replica that never acts would go unnoticed
                _LOG.exception("catch_up_bug")
                await self._clock.sleep(_AGAIN_S)
            else:
                break
        self._has_caught_up = self.is_held()
        _LOG.info("tenure_begins" if self._has_caught_up else "tenure_missed")
