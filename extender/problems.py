"""Gathering everything that is wrong with a pod, so that its author learns it all at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from scoring.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")
_D = TypeVar("_D")


def attempt(problems: list[InvalidRequest], default: _D, read: Callable[[], _T]) -> _T | _D:
    """Return what ``read`` returns; where it raises InvalidRequest, note the problem and return the default.

    A noted problem is kept for long, so it lets go of the frames and causes that it came through.
    """
    try:
        return read()
    except InvalidRequest as problem:
        problem.__cause__ = problem.__context__ = None
        problems.append(problem.with_traceback(None))
        return default
