"""How a question to the driver can end: NVML's many codes as five kinds (node-side.md 1.3)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

ValueT = TypeVar("ValueT")

SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION = 0, 1, 2, 3, 4
NOT_FOUND, INSUFFICIENT_SIZE, DRIVER_NOT_LOADED, TIMEOUT, LIBRARY_NOT_FOUND = 6, 7, 9, 10, 12
FUNCTION_NOT_FOUND, GPU_IS_LOST, LIB_RM_MISMATCH, VERSION_MISMATCH, GPU_NOT_FOUND, UNKNOWN = 13, 15, 18, 25, 28, 999
BINDING_PROBLEM = -1
"""Code of errors that the binding raises by itself: a struct it cannot read, a name that is not UTF-8."""


class Kind(StrEnum):
    """How a question to the driver ended."""

    VALUE = "value"
    UNSUPPORTED = "unsupported"
    DENIED = "denied"
    LOST = "lost"
    TRANSIENT = "transient"


KINDS = {
    NOT_SUPPORTED: Kind.UNSUPPORTED,
    FUNCTION_NOT_FOUND: Kind.UNSUPPORTED,
    VERSION_MISMATCH: Kind.UNSUPPORTED,
    26: Kind.UNSUPPORTED,
    NO_PERMISSION: Kind.DENIED,
    17: Kind.DENIED,
    UNKNOWN: Kind.DENIED,
    8: Kind.LOST,
    11: Kind.LOST,
    GPU_IS_LOST: Kind.LOST,
    16: Kind.LOST,
}
"""Everything else is transient: it may work next time."""

WORDS = {
    8: "power cables are not connected",
    11: "interrupt problem on the card",
    GPU_IS_LOST: "GPU is lost",
    16: "GPU needs a reset",
    DRIVER_NOT_LOADED: "driver is not loaded",
    LIBRARY_NOT_FOUND: "libnvidia-ml.so.1 not found",
    LIB_RM_MISMATCH: "user library and kernel module differ: driver upgrade in progress",
    NO_PERMISSION: "no permission",
    17: "kernel refused access to the device",
    UNKNOWN: "unknown error, in containers usually lost access to the device",
}


@dataclass(frozen=True, slots=True)
class Outcome(Generic[ValueT]):
    """A value, or why there is none; ``code`` is NVML's."""

    kind: Kind
    value: ValueT | None = None
    code: int = SUCCESS

    def words(self) -> str:
        """Say for people what went wrong."""
        return WORDS.get(self.code, f"NVML error {self.code}")
