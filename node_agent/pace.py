"""When to push next: a jittered heartbeat, a gap between urgent pushes, full-jitter backoff after failures.

Pure in (times, random numbers); the publisher's threads and the simulated fleet keep the same pace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

HEARTBEAT_LIMITS_S = (1.0, 300.0)


@dataclass(frozen=True, slots=True)
class PaceTimes:
    """Seconds: between heartbeats, the least between two pushes, and the backoff's first step and ceiling.

    ``first_s`` is the span over which the first push is spread, so that a cluster that starts does not push as one.
    """

    heartbeat_s: float = 15.0
    gap_s: float = 1.0
    backoff_first_s: float = 0.5
    backoff_limit_s: float = 30.0
    first_s: float = 2.0
    jitter: float = 0.1


class Pace:
    """The timing of one stream of pushes."""

    def __init__(self, times: PaceTimes, random: Callable[[], float], now_s: float) -> None:
        self._times = times
        self._random = random
        self._heartbeat_s = times.heartbeat_s
        self._failures = 0
        self._urgent_due_s = self._due_s = now_s + random() * times.first_s

    @property
    def failures(self) -> int:
        """How many pushes in a row did not succeed."""
        return self._failures

    def due_s(self, *, is_urgent: bool) -> float:
        """Return the time of the next push; failures hold urgent news back as well."""
        return self._urgent_due_s if is_urgent else self._due_s

    def set_heartbeat(self, heartbeat_s: float) -> None:
        """Take the interval that the extender asks for, within limits."""
        low_s, high_s = HEARTBEAT_LIMITS_S
        self._heartbeat_s = min(high_s, max(low_s, heartbeat_s))

    def succeeded(self, now_s: float) -> None:
        """Plan the next heartbeat."""
        self._failures = 0
        spread = 1 + self._times.jitter * (2 * self._random() - 1)
        self._urgent_due_s = now_s + self._times.gap_s
        self._due_s = max(self._urgent_due_s, now_s + self._heartbeat_s * spread)

    def failed(self, now_s: float) -> None:
        """Plan the retry: a random moment within a span that doubles with every failure in a row."""
        span_s = min(self._times.backoff_limit_s, self._times.backoff_first_s * 2 ** min(self._failures, 16))
        self._failures += 1
        self._urgent_due_s = self._due_s = now_s + self._random() * span_s
