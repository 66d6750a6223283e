"""Errors of the scoring core.

Infeasible is a value (see ``status.Verdict``); these are for input that cannot be understood::

    ScoringError
    ├── InvalidRequest      what a pod asks cannot be understood
    │   └── InvalidCondition    one of its conditions cannot
    └── InvalidPolicy       a policy of the configuration cannot be understood
"""

from __future__ import annotations


class ScoringError(Exception):
    """Base of every error that the scoring core raises."""


class InvalidRequest(ScoringError, ValueError):
    """Something that a pod asks cannot be understood.

    ``field`` is the resource or annotation as the author wrote it, ``found`` its value, ``valid`` what is accepted.
    """

    def __init__(self, field: str, found: str, valid: str) -> None:
        self.field = field
        self.found = found
        self.valid = valid
        super().__init__(f"{field}: found {found!r}, valid is {valid}")


class InvalidCondition(InvalidRequest):
    """A condition on devices cannot be understood."""


class InvalidPolicy(ScoringError, ValueError):
    """A policy profile cannot be understood; ``problems`` lists every fault found in it."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))
