"""Time as an argument: what the extender waits and counts with.

Only differences matter, so time is monotonic and starts anywhere. The agents' clocks are never asked.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time and waits."""

    def now(self) -> float:
        """Return seconds since an arbitrary moment; never goes back."""

    def wall(self) -> float:
        """Return seconds since 1970, for people to read and never to subtract."""

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Return the machine's monotonic time in seconds."""
        return time.monotonic()

    def wall(self) -> float:
        """Return the machine's idea of the time since 1970 in seconds."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Let other tasks run for so many seconds."""
        await asyncio.sleep(seconds)
