"""NVIDIA GPU generations, numbered as NVML numbers them and ordered from old to new.

NVML's number wins where it is one that we know; else the generation follows from the CUDA compute capability, which
every driver reports. A generation younger than this table is NEWER: it satisfies ``>=ampere`` and has no name to ask
for.
"""

from __future__ import annotations

from enum import IntEnum

NVML_UNKNOWN = 0xFFFFFFFF
"""What NVML answers when it has no number for the generation (nvml.h, NVML_DEVICE_ARCH_UNKNOWN)."""


class Architecture(IntEnum):
    """A GPU generation; a larger number is a younger one. UNKNOWN is below all and meets no condition."""

    UNKNOWN = 0
    KEPLER = 2
    MAXWELL = 3
    PASCAL = 4
    VOLTA = 5
    TURING = 6
    AMPERE = 7
    ADA = 8
    HOPPER = 9
    BLACKWELL = 10
    RUBIN = 13
    NEWER = 1000

    @property
    def label(self) -> str:
        """Return the name that authors write and read, such as ``ada``."""
        return self.name.lower()

    @classmethod
    def parse(cls, text: str) -> Architecture | None:
        """Return the generation of that name in any case (``ada`` or ``ada-lovelace``), None where there is none."""
        return _BY_NAME.get("-".join(text.lower().replace("_", " ").replace("-", " ").split()))

    @classmethod
    def from_compute_capability(cls, capability: tuple[int, int]) -> Architecture:
        """Return the generation of a CUDA compute capability; both (10, x) and (12, x) are Blackwell.

        Source: NVIDIA's CUDA toolkit, driver and architecture matrix; (11, 0) is Jetson Thor, also Blackwell.
        """
        if capability >= (14, 0):
            return cls.NEWER
        return next((found for floor, found in _BY_CAPABILITY if capability >= floor), cls.UNKNOWN)

    @classmethod
    def from_nvml(cls, number: int, capability: tuple[int, int] = (0, 0)) -> Architecture:
        """Return the generation of an NVML number; an unknown number falls back on the compute capability.

        NVML also numbers accelerators that are no GPUs (11, 12, 15), so such a number alone says nothing. Never raises.
        """
        if number in _NAMED_NUMBERS:
            return cls(number)
        return cls.from_compute_capability(capability)


NAMED = tuple(found for found in Architecture if found not in {Architecture.UNKNOWN, Architecture.NEWER})
"""Every generation that can be asked for by name, oldest first."""

_NAMED_NUMBERS = frozenset(int(found) for found in NAMED)
_BY_NAME = {found.label: found for found in NAMED} | {"ada-lovelace": Architecture.ADA, "lovelace": Architecture.ADA}
_BY_CAPABILITY = (
    ((13, 0), Architecture.RUBIN),
    ((10, 0), Architecture.BLACKWELL),
    ((9, 0), Architecture.HOPPER),
    ((8, 9), Architecture.ADA),
    ((8, 0), Architecture.AMPERE),
    ((7, 5), Architecture.TURING),
    ((7, 0), Architecture.VOLTA),
    ((6, 0), Architecture.PASCAL),
    ((5, 0), Architecture.MAXWELL),
    ((3, 0), Architecture.KEPLER),
)
