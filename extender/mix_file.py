"""The mix of request shapes as a file: what one extender has learned, for another to start with.

JSON: ``version`` 1 and ``shapes``, each with the pods' ``weight`` (any scale) and what they ask. Conditions are written
as a pod's annotations are, without prefix. ``tangram mix export`` writes it, ``TANGRAM_MIX_FILE`` reads it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from scoring.conditions import CONDITION_KEYS, parse_conditions
from scoring.errors import InvalidCondition
from scoring.request import DEFAULT_SHARING, SharingMode
from scoring.workload import Mix, Shape

VERSION = 1
_MOST_SHAPES = 4096
_MOST_BYTES = 4 * 2**20
_PREFIX = ""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class InvalidMix(ValueError):
    """A mix cannot be understood; the text names the field, what was found and what is valid."""


class _Shape(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, rename="camel"):
    weight: Annotated[float, msgspec.Meta(gt=0, le=1e12)]
    devices: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 0
    memory_mib: Count | None = None
    compute_milli: Annotated[int, msgspec.Meta(ge=1, le=1000)] | None = None
    cpu_milli: Count = 0
    conditions: dict[str, str] = {}
    sharing: list[SharingMode] | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    shapes: Annotated[list[_Shape], msgspec.Meta(max_length=_MOST_SHAPES)]


def encode_mix(mix: Mix) -> bytes:
    """Return a mix as the text of a file, most frequent shape first."""
    shapes = [
        _Shape(
            weight=weight,
            devices=shape.count,
            memory_mib=shape.memory_mib,
            compute_milli=shape.compute_milli,
            cpu_milli=shape.cpu_milli,
            conditions=dict(shape.conditions.describe()),
            sharing=None if shape.sharing == DEFAULT_SHARING else sorted(shape.sharing),
        )
        for shape, weight in mix.shapes
        if weight > 0
    ]
    return msgspec.json.format(msgspec.json.encode(_File(VERSION, shapes)), indent=1) + b"\n"


def decode_mix(text: bytes) -> Mix:
    """Return the mix of a file's text, weights as parts of 1. Raises InvalidMix."""
    try:
        file = msgspec.json.decode(text, type=_File)
    except msgspec.DecodeError as error:
        raise InvalidMix(f"no mix of shapes: {error}") from error
    if file.version != VERSION:
        raise InvalidMix(f"version: found {file.version}, valid is {VERSION}")
    shapes = [(_shape(at, each), each.weight) for at, each in enumerate(file.shapes)]
    total = sum(weight for _, weight in shapes)
    weights: dict[Shape, float] = {}
    for shape, weight in shapes:
        weights[shape] = weights.get(shape, 0.0) + weight / total
    return Mix(tuple(sorted(weights.items(), key=lambda item: -item[1])))


def read_mix(file: Path) -> Mix:
    """Return the mix of a file. Raises InvalidMix, which names the file."""
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise InvalidMix(f"found {file.stat().st_size} bytes, valid is at most {_MOST_BYTES}")
        return decode_mix(file.read_bytes())
    except (OSError, InvalidMix) as error:
        raise InvalidMix(f"{file}: {error}") from error


def _shape(at: int, found: _Shape) -> Shape:
    if found.devices and found.memory_mib is None and found.compute_milli is None:
        raise InvalidMix(f"shapes[{at}]: found neither memoryMib nor computeMilli, valid is one or both with devices")
    unknown = sorted(set(found.conditions) - set(CONDITION_KEYS))
    if unknown:
        raise InvalidMix(f"shapes[{at}].conditions: found {unknown[0]!r}, valid are {', '.join(CONDITION_KEYS)}")
    try:
        conditions = parse_conditions(found.conditions, _PREFIX)
    except InvalidCondition as error:
        raise InvalidMix(f"shapes[{at}].conditions: {error}") from error
    sharing = DEFAULT_SHARING if found.sharing is None else frozenset(found.sharing)
    return Shape(found.devices, found.memory_mib, found.compute_milli, found.cpu_milli, conditions, sharing)
