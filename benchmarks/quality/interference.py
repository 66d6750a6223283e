"""How much two jobs slow each other down on one V100, as measured, and what utilisation that speaks of.

Figures: Gavel (OSDI 2020), ``data_gavel/README.md`` has provenance and licence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FIGURES = Path(__file__).parent / "data_gavel" / "v100_pairs.json"
STEPS = 1000
"""Steps of the grid, 0 to 1, on which utilisation is looked for."""

ROUNDS = 100
"""Most rounds over all job types; the fit ends at the first that changes nothing."""


@dataclass(frozen=True, slots=True)
class Interference:
    """Speed of a job beside a partner, as a part of its speed alone: ``speed[a, b]`` is a's beside b."""

    speed: Mapping[tuple[str, str], float]

    @property
    def types(self) -> tuple[str, ...]:
        """Return the job types, by name, that were measured with each other and with themselves.

        The type with the most gaps goes first, until no gap is left.
        """
        left = sorted({name for name, _ in self.speed})
        while left:
            gaps = {name: sum((name, other) not in self.speed for other in left) for name in left}
            worst = max(left, key=lambda name: (gaps[name], (name, name) not in self.speed))
            if not gaps[worst]:
                break
            left.remove(worst)
        return tuple(left)


def read_interference(path: Path = FIGURES) -> Interference:
    """Return what was measured. Of a type beside itself the two jobs' mean counts."""
    figures = json.loads(path.read_text())
    alone, speed = figures["alone"], {}
    for first, second, of_first, of_second in figures["pairs"]:
        if first == second:
            speed[first, first] = (of_first + of_second) / 2 / alone[first]
        else:
            speed[first, second] = of_first / alone[first]
            speed[second, first] = of_second / alone[second]
    return Interference(speed)


def modelled(one: float, other: float) -> float:
    """Return the speed that two jobs of these utilisations are taken to have together: all they want or a fair part."""
    return 1.0 if one + other <= 1 else 1 / (one + other)


def utilisations(measured: Interference) -> dict[str, float]:
    """Return the utilisation, 0..1, of every type by least squares of ``modelled`` against what was measured.

    One type after the other takes the best of a grid while the rest stand still, until none moves.
    """
    types = measured.types
    grid = np.linspace(0, 1, STEPS + 1)
    found = dict.fromkeys(types, 0.5)
    for _ in range(ROUNDS):
        before = dict(found)
        for name in types:
            wrong = np.zeros(len(grid))
            for other in types:
                partner = grid if other == name else found[other]
                speed = 1 / np.maximum(grid + partner, 1)
                wrong += (speed - measured.speed[name, other]) ** 2
                if other != name:
                    wrong += (speed - measured.speed[other, name]) ** 2
            found[name] = float(grid[wrong.argmin()])
        if found == before:
            break
    return found


def misfit(measured: Interference, found: Mapping[str, float]) -> float:
    """Return the root mean square of what the model of utilisation gets wrong of a speed."""
    types = measured.types
    wrong = [(modelled(found[a], found[b]) - measured.speed[a, b]) ** 2 for a in types for b in types]
    return float(np.sqrt(np.mean(wrong)))
