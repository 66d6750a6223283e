"""One at a time for each key: the second caller waits until the first has come to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Turn:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class Turns:
    """Locks by key that exist only while somebody holds or awaits them."""

    def __init__(self) -> None:
        self._turns: dict[str, _Turn] = {}

    def is_taken(self, key: str) -> bool:
        """Return whether somebody has or awaits a turn."""
        return key in self._turns

    @asynccontextmanager
    async def of(self, key: str) -> AsyncIterator[None]:
        """Wait for the turn of ``key`` and hold it."""
        turn = self._turns.setdefault(key, _Turn())
        turn.waiting += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                del self._turns[key]
