"""The optional helper in C: the compiled ``native.c`` beside this file, and how it is called.

A build makes it where a compiler exists (``hatch_build.py``); without it numpy does the same work to the last bit.
"""

from __future__ import annotations

import ctypes
import sysconfig
from pathlib import Path

LIBRARY = f"native-{sysconfig.get_platform()}.helper"
"""File name of the helper; the platform is in it, so that a checkout can hold those of several machines.
It does not end like a module of Python, because it is none."""

LAYOUT = 5
"""Goes up with every change of a struct or a call: a helper of another layout is not used."""

MOST_WIDTH = 1024
"""Devices of one node beyond which the helper has no room."""

SCORERS = ("foresight", "packing", "preference", "spread", "sufficiency", "topology", "load", "scarcity")
"""Scorers that the helper knows, by the number that it knows them by."""


DEVICE_FIELDS = (
    "kind",
    "device_state",
    "mode",
    "capacity_mib",
    "capacity_milli",
    "booked_mib",
    "booked_milli",
    "foreign_mib",
    "numa",
    "link",
)
"""Device columns of a fleet that the helper looks at."""

NODE_FIELDS = ("node_state", "cpu_capacity_milli", "cpu_booked_milli")
"""Node columns of a fleet that it looks at."""


class Column(ctypes.Structure):
    """A device column: address, and bytes from one slot to the next."""

    _fields_ = (("data", ctypes.c_void_p), ("stride", ctypes.c_int64))


LOAD_FIELDS = ("load", "settling_milli", "capacity_milli", "foreign_mib", "capacity_mib")
"""Device columns from which the value of load follows."""

LoadWords = ctypes.c_int64 * (2 + 2 * len(LOAD_FIELDS))
"""``load_columns`` of ``native.c`` as words."""

FLEET_WORDS = 1 + 2 * len(DEVICE_FIELDS) + len(NODE_FIELDS)
FleetWords = ctypes.c_int64 * FLEET_WORDS
"""``fleet`` of ``native.c`` as words: the width, a column for each device field, an address for each node field.

It is made for every decision, and filling a structure field by field takes several times as long."""


class AskStruct(ctypes.Structure):
    """``ask`` of ``native.c``."""

    _fields_ = (
        ("count", ctypes.c_int64),
        ("memory_mib", ctypes.c_int64),
        ("compute_milli", ctypes.c_int64),
        ("cpu_milli", ctypes.c_int64),
        ("is_whole", ctypes.c_int64),
        ("kind_matches", ctypes.c_void_p),
        ("mode_matches", ctypes.c_void_p),
        ("takes_all", ctypes.c_void_p),
        ("preference", ctypes.c_void_p),
        ("sufficiency", ctypes.c_void_p),
        ("kinds", ctypes.c_int64),
        ("reasons", ctypes.c_void_p),
        ("scorers", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
        ("scorers_count", ctypes.c_int64),
        ("has_scarcity", ctypes.c_int64),
        ("load_weight", ctypes.c_float),
        ("scarcity_weight", ctypes.c_float),
    )


class OutlookStruct(ctypes.Structure):
    """``outlook`` of ``native.c``."""

    _fields_ = (
        ("known", ctypes.c_int64),
        ("levels", ctypes.c_int64),
        ("knows_demand", ctypes.c_int64),
        ("cpu_levels", ctypes.c_void_p),
        ("unusable", ctypes.c_void_p),
        ("several_count", ctypes.c_int64),
        ("several", ctypes.c_void_p),
        ("several_weights", ctypes.c_void_p),
        ("worth", ctypes.c_void_p),
        ("cpu_per_device", ctypes.c_float),
        ("cpu_noise", ctypes.c_float),
        ("cpu_least", ctypes.c_float),
        ("scale", ctypes.c_float),
        ("fragmentation", ctypes.c_float),
        ("cpu_shortage", ctypes.c_float),
        ("worth_weight", ctypes.c_float),
        ("kinds_weight", ctypes.c_float),
        ("step_milli", ctypes.c_float),
        ("range_milli", ctypes.c_float),
        ("knows_prospect", ctypes.c_int64),
        ("scarce", ctypes.c_void_p),
        ("slots_count", ctypes.c_int64),
        ("slot_counts", ctypes.c_void_p),
        ("slot_cpu", ctypes.c_void_p),
        ("slot_price", ctypes.c_void_p),
        ("slot_kinds", ctypes.c_void_p),
    )


class StandingStruct(ctypes.Structure):
    """``standing`` of ``native.c``."""

    _fields_ = (
        ("code", ctypes.c_void_p),
        ("reason", ctypes.c_void_p),
        ("fits", ctypes.c_void_p),
        ("value", ctypes.c_void_p),
        ("rest", ctypes.c_void_p),
        ("left", ctypes.c_void_p),
        ("nodes", ctypes.c_int64),
    )


def open_library(folder: Path | None = None) -> ctypes.PyDLL | None:
    """Return the helper, None where none was built or this machine cannot load it.

    Calls keep the interpreter's lock: they take less time than waiting for it again behind another thread.
    """
    path = (Path(__file__).parent if folder is None else folder) / LIBRARY
    try:
        library = ctypes.PyDLL(str(path))
        layout = ctypes.c_int64.in_dll(library, "tangram_layout").value
        stand, scores = library.tangram_stand, library.tangram_scores
        load, levels = library.tangram_load, library.tangram_levels
    except (OSError, AttributeError, ValueError):
        return None
    if layout != LAYOUT:
        return None
    pointer = ctypes.c_void_p
    stand.argtypes = (pointer, pointer, pointer, pointer, ctypes.c_int64, pointer)
    scores.argtypes = (pointer, pointer, pointer, pointer, Column, pointer, pointer, pointer)
    load.argtypes = (pointer, pointer, ctypes.c_int64, ctypes.c_float, ctypes.c_float, pointer)
    levels.argtypes = (pointer, pointer, pointer, ctypes.c_int64, ctypes.c_int32, pointer)
    stand.restype = scores.restype = load.restype = levels.restype = None
    return library
