"""Policies: named weights of scorers, from the configuration.

``SCORERS`` is the table of contents of ``policies/``; ``PROFILES`` are the policies that every install has.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from scoring.candidates import Candidates, Values
from scoring.errors import InvalidPolicy
from scoring.helper import Helper
from scoring.policies.foresight import foresight
from scoring.policies.fragmentation import fragmentation
from scoring.policies.load import load
from scoring.policies.packing import packing
from scoring.policies.preference import preference
from scoring.policies.scarcity import scarcity
from scoring.policies.spread import spread
from scoring.policies.sufficiency import sufficiency
from scoring.policies.topology import topology

Scorer = Callable[[Candidates], Values]

SCORERS: Mapping[str, Scorer] = {
    "foresight": foresight,
    "fragmentation": fragmentation,
    "load": load,
    "packing": packing,
    "preference": preference,
    "scarcity": scarcity,
    "spread": spread,
    "sufficiency": sufficiency,
    "topology": topology,
}

PROFILES: Mapping[str, Mapping[str, float]] = {
    "binpack": {
        "foresight": 100,
        "scarcity": 100,
        "preference": 25,
        "topology": 2,
        "packing": 0.02,
        "sufficiency": 0.02,
        "load": 0.02,
    },
    "spread": {"spread": 3, "load": 3, "sufficiency": 1, "topology": 1, "preference": 4},
    "latency": {"load": 4, "spread": 2, "topology": 2, "preference": 4},
}

DEFAULT_POLICY = "binpack"

PASSING = frozenset({"load", "scarcity"})
"""Scorers that look at what changes without the node changing: measured load, and the fleet as a whole."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A named set of scorers with weights that sum to 1; ``helper`` works them out faster than numpy, and equally."""

    name: str
    weights: tuple[tuple[str, float], ...]
    helper: Helper | None = field(default=None, compare=False, repr=False)

    def scorers(self) -> tuple[tuple[str, Scorer, float], ...]:
        """Return name, function and weight of each scorer."""
        return tuple((name, SCORERS[name], weight) for name, weight in self.weights)

    def standing_value(self, view: Candidates) -> Values:
        """Return the weighted sum of what stays as it is while the node does, shape ``(width, nodes)``."""
        return self._sum(view, passing=False)

    def passing_value(self, view: Candidates) -> Values:
        """Return the weighted sum of the rest: see ``PASSING``."""
        return self._sum(view, passing=True)

    def value(self, view: Candidates) -> Values:
        """Return the weighted mean of all scorers for every device, 0..1, always added up in the same order."""
        return self.standing_value(view) + self.passing_value(view)

    def _sum(self, view: Candidates, *, passing: bool) -> Values:
        value = np.zeros(view.rest_milli.shape, np.float32)
        for name, scorer, weight in self.scorers():
            if (name in PASSING) == passing:
                value += np.float32(weight) * scorer(view)
        return value


def build_policies(
    profiles: Mapping[str, Mapping[str, float]] | None = None, helper: Helper | None = None
) -> Mapping[str, Policy]:
    """Return the policies by name: ``PROFILES``, overlaid by those of the configuration.

    Raises InvalidPolicy naming every problem: an unknown scorer (with the nearest known), a weight that is not a finite
    number of 0 or more, a policy without any weight above 0.
    """
    merged = {**PROFILES, **(profiles or {})}
    problems = tuple(problem for name, weights in merged.items() for problem in _problems(name, weights))
    if problems:
        raise InvalidPolicy(problems)
    return {name: _policy(name, weights, helper) for name, weights in merged.items()}


def _policy(name: str, weights: Mapping[str, float], helper: Helper | None) -> Policy:
    total = sum(weights.values())
    parts = tuple((scorer, weight / total) for scorer, weight in sorted(weights.items()) if weight > 0)
    return Policy(name, parts, helper)


def _problems(policy: str, weights: Mapping[str, float]) -> list[str]:
    problems = []
    for scorer, weight in weights.items():
        if scorer not in SCORERS:
            near = difflib.get_close_matches(scorer, SCORERS, 1)
            hint = f" (nearest: {near[0]})" if near else ""
            problems.append(f"policy {policy}: unknown scorer {scorer!r}{hint}, valid are {', '.join(SCORERS)}")
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight) or weight < 0:
            problems.append(f"policy {policy}: weight of {scorer} is {weight!r}, valid is a number of 0 or more")
    if not problems and not any(weight > 0 for weight in weights.values()):
        problems.append(f"policy {policy}: no scorer has a weight above 0")
    return problems
