"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio


class ManualClock:
    """Time moves by ``advance`` only; ``sleep`` moves it too, and lets other tasks run."""

    def __init__(self, now: float = 1000.0) -> None:
        self._now = now
        self.slept: list[float] = []

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return 1_700_000_000.0 + self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._now += seconds
        await asyncio.sleep(0)
