"""What the groups of questions to the driver share: a handle, and one way to ask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NewType

from node_agent.nvml_outcome import Outcome

Handle = NewType("Handle", object)
"""A device as the binding holds it: neither hashable nor comparable, dead once the device is."""


class Asker(ABC):
    """Makes one call of the binding; the groups of questions are built on it."""

    @abstractmethod
    def ask(self, call: str, *arguments: object) -> Outcome[Any]:
        """Make one call and turn every way in which it can fail into an outcome."""
