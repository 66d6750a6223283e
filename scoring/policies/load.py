"""Load: devices that are measured to be idle first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scoring.candidates import Candidates, Values
from scoring.fleet import Fleet

UNKNOWN_LOAD = np.float32(0.5)
"""What a device counts as whose load nobody measured: neither idle nor busy."""

FOREIGN_PART = np.float32(0.25)
"""How much of the value memory of foreign processes decides; the measured load decides the rest."""

WORTH_REFRESHING = 0.3
"""Part of the rows beyond which working all of them out costs no more than picking out the changed ones."""


def load(candidates: Candidates) -> Values:
    """Return 1 for an idle device down to 0 for a busy one.

    Load is the EWMA of utilisation plus the compute of pods placed too recently to show in it. A device with memory
    held by processes that are nobody's pods is busier than it says.
    """
    known = candidates.load_value
    return known if known is not None else load_value(candidates.fleet)


def load_value(fleet: Fleet, rows: npt.NDArray[np.intp] | None = None) -> Values:
    """Return the value of every device of the fleet, or of these rows only; the same for every request."""
    measured, settling, milli, foreign, mib = (
        column if rows is None else column[:, rows]
        for column in (fleet.load, fleet.settling_milli, fleet.capacity_milli, fleet.foreign_mib, fleet.capacity_mib)
    )
    measured = np.where(np.isnan(measured), UNKNOWN_LOAD, measured)
    busy = np.minimum(measured + settling / np.maximum(milli, 1).astype(np.float32), 1.0)
    held = np.minimum(np.maximum(foreign / np.maximum(mib, 1).astype(np.float32), 0.0), 1.0)
    return (1.0 - (1.0 - FOREIGN_PART) * busy - FOREIGN_PART * held).astype(np.float32)


Writer = Callable[[Fleet, npt.NDArray[np.intp], Values], None]


@dataclass(slots=True)
class LoadValues:
    """The value of every device at one generation of the fleet; ``follow`` works out anew the rows that changed."""

    generation: int
    values: Values

    @classmethod
    def of(cls, fleet: Fleet) -> LoadValues:
        """Work all rows out."""
        return cls(fleet.generation, load_value(fleet))

    def follow(self, fleet: Fleet, writer: Writer | None = None) -> Values:
        """Return the values of a fleet of the same or a later generation; they change with the next call.

        ``writer`` writes the values of some rows in ``load_value``'s place, to the last bit.
        """
        if self.generation == fleet.generation:
            return self.values
        rows = fleet.scored_since(self.generation)
        self.generation = fleet.generation
        if self.values.shape != fleet.load.shape or len(rows) > len(fleet) * WORTH_REFRESHING:
            self.values = load_value(fleet)
        elif writer is not None:
            writer(fleet, rows, self.values)
        else:
            self.values[:, rows] = load_value(fleet, rows)
        return self.values
