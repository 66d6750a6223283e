"""Which XID and which counter means what for a device: the table, one source a row.

Sources: "catalogue" is NVIDIA's XID catalogue as summed up in node-side.md 4.4; "plugin" is the list that NVIDIA's
device plugin treats as application errors (node-side.md 3.1); "section 1.5" is node-side.md's table of health
functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Action(StrEnum):
    """What a fault does to its device.

    ``count``      the application's own fault: counted, the device stays
    ``suspect``    the device stays, is marked, and is left by itself after a quiet time
    ``rest``       out for a quiet time, then probation: the fault was contained
    ``reset``      out until the device was seen to be reset, then probation
    ``replace``    out for good in this life of the agent: the board wants replacing
    """

    COUNT = "count"
    SUSPECT = "suspect"
    REST = "rest"
    RESET = "reset"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Rule:
    """One row: what the fault is called, what it does, where that is written."""

    action: Action
    words: str
    source: str


XID_RULES: dict[int, Rule] = {
    13: Rule(Action.COUNT, "graphics engine exception", "catalogue: restart the application; plugin"),
    31: Rule(Action.COUNT, "GPU memory page fault", "catalogue: restart the application; plugin"),
    32: Rule(Action.COUNT, "invalid or corrupted push buffer", "catalogue: restart the application"),
    39: Rule(Action.COUNT, "copy engine exception", "catalogue: restart the application"),
    43: Rule(Action.COUNT, "GPU stopped processing", "catalogue: ignore; plugin"),
    44: Rule(Action.COUNT, "graphics context fault", "catalogue: ignore"),
    45: Rule(Action.COUNT, "preemptive cleanup after an earlier error", "catalogue: follow the companion; plugin"),
    46: Rule(Action.RESET, "GPU stopped processing, reset needed", "catalogue: reset the GPU"),
    48: Rule(Action.RESET, "double-bit ECC error", "catalogue: workflow 48; alert list"),
    54: Rule(Action.SUSPECT, "auxiliary power is not connected", "catalogue: check power"),
    62: Rule(Action.RESET, "internal micro-controller halt", "catalogue: reset the GPU"),
    63: Rule(Action.SUSPECT, "page retired or row remapped", "catalogue: inform"),
    64: Rule(Action.RESET, "page retirement or row remap failed", "catalogue: reset the GPU"),
    66: Rule(Action.COUNT, "illegal access by the driver's client", "catalogue: ignore"),
    68: Rule(Action.COUNT, "video decoder exception", "catalogue: restart the application; plugin"),
    69: Rule(Action.COUNT, "graphics engine class error", "catalogue: restart the application"),
    74: Rule(Action.REST, "NVLink error", "catalogue: NVLink; alert list"),
    78: Rule(Action.SUSPECT, "vGPU start error", "catalogue: update software"),
    79: Rule(Action.RESET, "GPU has fallen off the bus", "catalogue: node reboot"),
    92: Rule(Action.SUSPECT, "high rate of single-bit ECC errors", "catalogue: inform"),
    93: Rule(Action.SUSPECT, "inforom erase limit", "catalogue: inform"),
    94: Rule(Action.REST, "contained ECC error", "catalogue: restart the application; device-plugin issue 1014"),
    95: Rule(Action.RESET, "uncontained ECC error", "catalogue: reset the GPU"),
    109: Rule(Action.RESET, "context switch timeout", "catalogue: reset the GPU (the plugin ignores it)"),
    110: Rule(Action.RESET, "security fault", "catalogue: reset the GPU"),
    119: Rule(Action.RESET, "GSP does not answer", "catalogue: reset the GPU"),
    120: Rule(Action.RESET, "GSP error", "catalogue: reset the GPU"),
    154: Rule(Action.SUSPECT, "recovery action changed", "catalogue: announces a recovery action; field 230 decides"),
}

UNKNOWN_XID = Rule(Action.SUSPECT, "not in the catalogue", "an unknown code is watched, not trusted and not condemned")

RECOVERY_ACTIONS: dict[int, Rule] = {
    1: Rule(Action.RESET, "driver asks for a GPU reset", "section 1.5: field 230"),
    2: Rule(Action.RESET, "driver asks for a node reboot", "section 1.5: field 230"),
    3: Rule(Action.RESET, "driver asks to drain peer-to-peer work", "section 1.5: field 230"),
    4: Rule(Action.RESET, "driver asks to drain and reset", "section 1.5: field 230"),
    5: Rule(Action.RESET, "driver asks for IMEX recovery", "section 1.5: field 230"),
    6: Rule(Action.RESET, "driver asks for a bus reset", "section 1.5: field 230"),
    7: Rule(Action.RESET, "driver asks for a system reboot", "section 1.5: field 230"),
}

REMAP_PENDING = Rule(Action.RESET, "row remap waits for a reset", "section 1.5: row remap")
REMAP_FAILED = Rule(Action.REPLACE, "row remap failed", "section 1.5: row remap, failure means replace")
RETIRED_PENDING = Rule(Action.RESET, "page retirement waits for a reset", "section 1.5: retired pages")
UNCORRECTED_ECC = Rule(Action.SUSPECT, "new uncorrected ECC errors", "node-side.md 4.4: alert list")
FABRIC_INCOMPLETE = Rule(Action.REST, "NVLink fabric is not complete", "section 1.5: fabric; 7, rule 6")
HARDWARE_SLOWDOWN = Rule(Action.SUSPECT, "hardware holds the clocks down", "section 1.5: throttling bits 0x40 and 0x80")

HARDWARE_SLOWDOWN_BITS = 0x40 | 0x80


def xid_rule(xid: int) -> Rule:
    """Return the row for an XID; codes that nobody listed get the row for the unknown."""
    return XID_RULES.get(xid, UNKNOWN_XID)
