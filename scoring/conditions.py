"""Typed conditions on devices (placeholder until the full module lands)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Conditions:
    """Every condition of one pod."""


ANY_DEVICE = Conditions()
