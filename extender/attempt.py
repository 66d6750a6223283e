"""What the bind transaction works on: one Binding to post, and what is known when a pod is on its node."""

from __future__ import annotations

from dataclasses import dataclass

from extender.holdings import Reservation
from extender.objects import Pod
from extender.wire import BindArgs
from scoring.request import Allocation, PodRequest


@dataclass(frozen=True, slots=True)
class Bound:
    """A pod is on its node. ``allocation`` is None without devices of ours; ``is_repeat`` if it was there before."""

    pod: Pod
    node: str
    allocation: Allocation | None
    is_repeat: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """One Binding to post: for which call, by when, with what, and on which reservation (None without devices).

    ``deadline`` in seconds of the monotonic clock.
    """

    args: BindArgs
    deadline: float
    pod: Pod
    request: PodRequest
    reservation: Reservation | None
    annotations: dict[str, str]


class PodChanged(Exception):
    """The pod is not as it was read any more, and nothing was written."""
