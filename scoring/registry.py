"""Policies: named weights of scorers, from the configuration.

``SCORERS`` is the table of contents of ``policies/``; ``PROFILES`` are the policies that every install has.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from scoring.candidates import Candidates, Values
from scoring.errors import InvalidPolicy
from scoring.policies.foresight import foresight
from scoring.policies.fragmentation import fragmentation
from scoring.policies.load import load
from scoring.policies.packing import packing
from scoring.policies.preference import preference
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
    "spread": spread,
    "sufficiency": sufficiency,
    "topology": topology,
}

PROFILES: Mapping[str, Mapping[str, float]] = {
    "binpack": {"packing": 3, "fragmentation": 2, "sufficiency": 3, "load": 1, "topology": 1, "preference": 4},
    "spread": {"spread": 3, "load": 3, "sufficiency": 1, "topology": 1, "preference": 4},
    "latency": {"load": 4, "spread": 2, "topology": 2, "preference": 4},
}

DEFAULT_POLICY = "binpack"


@dataclass(frozen=True, slots=True)
class Policy:
    """A named set of scorers with weights that sum to 1."""

    name: str
    weights: tuple[tuple[str, float], ...]

    def scorers(self) -> tuple[tuple[str, Scorer, float], ...]:
        """Return name, function and weight of each scorer."""
        return tuple((name, SCORERS[name], weight) for name, weight in self.weights)


def build_policies(profiles: Mapping[str, Mapping[str, float]] | None = None) -> Mapping[str, Policy]:
    """Return the policies by name: ``PROFILES``, overlaid by those of the configuration.

    Raises InvalidPolicy naming every problem: an unknown scorer (with the nearest known), a weight that is not a finite
    number of 0 or more, a policy without any weight above 0.
    """
    merged = {**PROFILES, **(profiles or {})}
    problems = tuple(problem for name, weights in merged.items() for problem in _problems(name, weights))
    if problems:
        raise InvalidPolicy(problems)
    return {name: _policy(name, weights) for name, weights in merged.items()}


def _policy(name: str, weights: Mapping[str, float]) -> Policy:
    total = sum(weights.values())
    return Policy(name, tuple((scorer, weight / total) for scorer, weight in sorted(weights.items()) if weight > 0))


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
