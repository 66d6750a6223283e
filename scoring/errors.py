"""Errors of the scoring core.

Infeasible is a value (see ``status.Verdict``); these are for input that cannot be understood::

    ScoringError
    ├── InvalidRequest      what a pod asks cannot be understood
    │   └── InvalidCondition    one of its conditions cannot
    └── InvalidPolicy       a policy of the configuration cannot be understood
"""

from __future__ import annotations

_MOST_FIELD = 512
_MOST_FOUND = 256
_MOST_VALID = 2048


class ScoringError(Exception):
    """Base of every error that the scoring core raises."""


class InvalidRequest(ScoringError, ValueError):
    """Something that a pod asks cannot be understood.

    ``field`` is the resource or annotation as the author wrote it, ``found`` its value, ``valid`` what is accepted;
    each is cut where it is too long to be read.
    """

    def __init__(self, field: str, found: str, valid: str) -> None:
        self.field = _shown(field, _MOST_FIELD)
        self.found = _shown(found, _MOST_FOUND)
        self.valid = _shown(valid, _MOST_VALID)
        super().__init__(f"{self.field}: found {self.found!r}, valid is {self.valid}")


class InvalidCondition(InvalidRequest):
    """A condition on devices cannot be understood."""


class InvalidPolicy(ScoringError, ValueError):
    """A policy profile cannot be understood; ``problems`` lists every fault found in it."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


def _shown(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}..."
