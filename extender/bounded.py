"""Memories that are bounded: what was remembered first makes room."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def keep(memory: OrderedDict[_Key, _Value], key: _Key, value: _Value, most: int) -> None:
    """Remember a value as the newest of at most ``most``; the oldest make room."""
    memory[key] = value
    memory.move_to_end(key)
    while len(memory) > most:
        memory.popitem(last=False)
