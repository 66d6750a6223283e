"""What can go wrong between the extender and the API server, as values.

`answer` faults happen after the API server has acted: the client cannot know that it did.
"""

import re
import threading
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What the proxy does with a request."""

    NONE = "none"
    DELAY = "delay"
    DELAY_ANSWER = "delay_answer"
    HOLD = "hold"
    HOLD_ANSWER = "hold_answer"
    DROP_ANSWER = "drop_answer"
    REFUSE = "refuse"
    DUPLICATE = "duplicate"
    STATUS = "status"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong; made by the functions below."""

    kind: Kind
    seconds: float = 0.0
    status: int = 0


def delay(seconds: float) -> Fault:
    """Forward the request only after `seconds`."""
    return Fault(Kind.DELAY, seconds=seconds)


def delay_answer(seconds: float) -> Fault:
    """Forward at once, give the answer after `seconds`."""
    return Fault(Kind.DELAY_ANSWER, seconds=seconds)


def hold() -> Fault:
    """Forward the request only when the rule is released."""
    return Fault(Kind.HOLD)


def hold_answer() -> Fault:
    """Forward at once, give the answer only when the rule is released."""
    return Fault(Kind.HOLD_ANSWER)


def drop_answer() -> Fault:
    """Let the API server act, then close the connection without an answer."""
    return Fault(Kind.DROP_ANSWER)


def refuse() -> Fault:
    """Close the connection; the API server never hears of the request."""
    return Fault(Kind.REFUSE)


def duplicate() -> Fault:
    """Send the request to the API server twice, as a retry on the way would, and give the second answer."""
    return Fault(Kind.DUPLICATE)


def status(code: int) -> Fault:
    """Answer with an HTTP error; the API server never hears of the request."""
    return Fault(Kind.STATUS, status=code)


def gone() -> Fault:
    """Answer a watch as the API server does for an expired version: 200, and one ERROR event with code 410."""
    return Fault(Kind.GONE)


@dataclass(frozen=True, slots=True)
class Match:
    """Which requests are meant. Patterns are regular expressions.

    The method must match as a whole, the path (without its query) anywhere; `watch` chooses watches, or the others.
    """

    method: str = ".*"
    path: str = ""
    watch: bool | None = None

    def covers(self, method: str, path: str, *, is_watch: bool) -> bool:
        """Tell whether a request is meant."""
        if self.watch is not None and self.watch is not is_watch:
            return False
        return bool(re.fullmatch(self.method, method) and re.search(self.path, path))


class Rule:
    """A fault that befalls the next `times` (None: all) requests that match. Safe to use from any thread."""

    def __init__(self, fault: Fault, match: Match, times: int | None = 1) -> None:
        self.fault = fault
        self._match = match
        self._times = times
        self._hits = 0
        self._released = False
        self._changed = threading.Condition()

    @property
    def hits(self) -> int:
        """How many requests it has befallen."""
        return self._hits

    @property
    def is_released(self) -> bool:
        """Whether held requests may go on."""
        return self._released

    def release(self) -> None:
        """Let held requests go on, and befall no more."""
        with self._changed:
            self._times = self._hits
            self._released = True

    def wait_hit(self, count: int = 1, *, within_s: float = 20.0) -> None:
        """Wait until it has befallen `count` requests. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._hits >= count, within_s):
                message = f"{self.fault.kind} befell {self._hits} of {count} requests that match {self._match}"
                raise TimeoutError(message)

    def take(self, method: str, path: str, *, is_watch: bool) -> bool:
        """Count and claim one request if the rule is meant for it; called by the proxy alone."""
        with self._changed:
            spent = self._times is not None and self._hits >= self._times
            if spent or not self._match.covers(method, path, is_watch=is_watch):
                return False
            self._hits += 1
            self._changed.notify_all()
            return True
