"""What the extender asks of the API server, as one protocol and frozen values.

What decides on outcomes, leases, events and identities imports this leaf, and so neither a network nor the official
client, which takes most of a second to import.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from extender.objects import Pod


class BindStatus(StrEnum):
    """What is known of a Binding after it was posted."""

    BOUND = "bound"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class BindOutcome:
    """How the API server took a Binding.

    ``BOUND``    it was written
    ``REFUSED``  it was not, for certain: a 4xx answer, or nothing was sent
    ``UNKNOWN``  it may have been: time ran out, the connection broke, or a 5xx answer; a read settles it

    ``code`` is the HTTP status, None without an answer; ``message`` is for people.
    """

    status: BindStatus
    code: int | None = None
    message: str = ""


class EventType(StrEnum):
    """Kubernetes' two kinds of events."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class EventNote:
    """One event about a pod or a node (``kind``); ``namespace`` and ``uid`` are empty where the object has none.

    ``reason`` is a word in CamelCase, ``message`` a sentence; the API server takes at most 1,024 characters of it, and
    longer ones are cut.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    reason: str
    message: str
    type: EventType = EventType.WARNING


@dataclass(frozen=True, slots=True)
class TokenIdentity:
    """Whom a bearer token speaks for; ``extra`` holds what a projected token is bound to (node name, pod UID)."""

    username: str
    uid: str
    groups: tuple[str, ...]
    audiences: tuple[str, ...]
    extra: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease of ``coordination.k8s.io/v1``; times are RFC 3339 with microseconds, as the API server wants them.

    ``resource_version`` is empty for one that is to be created. ``duration_s`` and ``transitions`` are 0 where unset.
    """

    namespace: str
    name: str
    holder: str
    duration_s: int
    acquire_time: str
    renew_time: str
    transitions: int
    resource_version: str = ""


class Kube(Protocol):
    """What the extender asks of the API server, apart from list and watch (``reflector.ListWatch``).

    Every method raises KubeError children: KubeUnreachable, KubeRefused, OutcomeUnknown, UnreadableAnswer.
    """

    async def get_pod(self, namespace: str, name: str) -> Pod | None:
        """Read one pod as it is now; None if there is none of that name."""

    async def bind(
        self,
        namespace: str,
        name: str,
        uid: str,
        node: str,
        annotations: Mapping[str, str],
        deadline_s: float | None = None,
        resource_version: str = "",
    ) -> BindOutcome:
        """Bind the pod of that UID to ``node`` and add ``annotations`` to it, in one write. Raises nothing.

        Nothing is sent after ``deadline_s`` on the monotonic clock. If the caller is cancelled, the outcome is unknown.
        A pod that is not of ``resource_version`` any more is refused with 409; empty takes it as it is.
        """

    async def patch_node_status(self, node: str, totals: Mapping[str, str | None]) -> None:
        """Set resources in the node's capacity and allocatable; None removes one."""

    async def patch_node_annotation(self, node: str, key: str, value: str | None) -> None:
        """Set one annotation of a node; None removes it."""

    async def create_event(self, note: EventNote) -> None:
        """Create an event about a pod or a node."""

    async def token_review(self, token: str, audiences: Sequence[str]) -> TokenIdentity | None:
        """Ask whom a token speaks for; None if it is not valid for any of ``audiences``."""

    async def get_lease(self, namespace: str, name: str) -> Lease | None:
        """Read a lease; None if there is none of that name."""

    async def create_lease(self, lease: Lease) -> Lease:
        """Create a lease; KubeRefused 409 where one exists."""

    async def update_lease(self, lease: Lease) -> Lease:
        """Replace a lease if its ``resource_version`` is still current; KubeRefused 409 where it is not."""
