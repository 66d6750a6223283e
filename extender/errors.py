"""Errors of the extender: malformed input, lost races, and the world outside.

What a pod asks is judged by ``scoring`` (``InvalidRequest``); that a pod fits nowhere is a value, not an error::

    ExtenderError
    ├── WireError               a body that kube-scheduler sent cannot be understood
    │   ├── MalformedBody           not the JSON that its verb calls for
    │   ├── BodyTooLarge            longer than the settings allow
    │   └── NotCacheCapable         whole nodes were sent: the scheduler's configuration is wrong
    ├── InvalidAllocation       an allocation annotation cannot be understood
    ├── InvalidReport           an agent's report cannot be understood
    ├── UnknownNode             a report for a node that the cluster does not have, or not yet
    ├── NotAllowed              a caller may not report for that node
    ├── ViewersOnly             pods' names were asked for by nobody who may read them (in ``viewers``)
    ├── CannotJudge             a question about a pod and a node that has no answer (in ``insight``)
    ├── HistoryUnavailable      what is kept of past attempts cannot be read (in ``history``)
    ├── EvictionUnderWay        others are evicted for this pod already, and the books do not show it yet
    ├── BindError               a placement was lost before it was written
    │   ├── PodReplaced             another pod lives under that name now
    │   ├── BoundElsewhere          the pod already runs on another node
    │   ├── NoLongerFits            what filter found free has been taken since
    │   └── NotActive               this replica may not act on the cluster
    └── KubeError               the API server answered no, or not at all
        ├── KubeRefused             a definite no, with its HTTP status
        ├── OutcomeUnknown          sent, and no answer: it may or may not have happened
        ├── KubeUnreachable         nothing was sent: no connection, or the deadline had passed before
        └── UnreadableAnswer        an answer that is too long, or not what its call promises
"""

from __future__ import annotations

from typing import ClassVar

_MOST_FOUND = 256


class ExtenderError(Exception):
    """Base of every error that the extender raises; ``code`` is stable and fit for a metric's label."""

    code: ClassVar[str] = "ExtenderError"


class WireError(ExtenderError):
    """A body that kube-scheduler sent cannot be understood."""

    code = "WireError"


class MalformedBody(WireError):
    """A body is not the JSON that its verb calls for."""

    code = "MalformedBody"


class BodyTooLarge(WireError):
    """A body is longer than the limit; both in bytes, ``found`` as announced or as read so far."""

    code = "BodyTooLarge"

    def __init__(self, found: int, limit: int) -> None:
        self.found = found
        self.limit = limit
        super().__init__(f"body of {found} bytes, at most {limit} are read")


class NotCacheCapable(WireError):
    """Whole nodes were sent instead of names."""

    code = "NotCacheCapable"

    def __init__(self) -> None:
        super().__init__(
            "NodeNames: found null beside whole Nodes, valid is a list of names: "
            "set nodeCacheCapable: true for this extender in KubeSchedulerConfiguration"
        )


class InvalidAllocation(ExtenderError, ValueError):
    """An allocation annotation cannot be understood.

    ``field`` is the path inside it (``$.containers[...][0].memory_mib``), ``problem`` what is wrong there.
    """

    code = "InvalidAllocation"

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        self.problem = problem
        super().__init__(f"allocation {field}: {problem}")


class InvalidReport(ExtenderError, ValueError):
    """A report cannot be understood: ``field`` is the path in it, ``found`` what stands there, ``valid`` what could."""

    code = "InvalidReport"

    def __init__(self, field: str, found: str, valid: str) -> None:
        self.field = field
        self.found = found[:_MOST_FOUND]
        self.valid = valid
        super().__init__(f"{field}: found {self.found}, valid is {valid}")


class UnknownNode(ExtenderError):
    """A report for a node that the cluster does not have, or not yet."""

    code = "UnknownNode"


class NotAllowed(ExtenderError):
    """A caller may not report for this node; ``status`` is 401 without an identity, 403 with the wrong one."""

    code = "NotAllowed"

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


class EvictionUnderWay(ExtenderError):
    """Pods were evicted for this one just now, perhaps on ``node``, and the books do not show their end yet."""

    code = "EvictionUnderWay"

    def __init__(self, node: str) -> None:
        self.node = node
        super().__init__("pods are being evicted for this pod already; it is tried again when they are gone")


class BindError(ExtenderError):
    """A placement was lost before it was written."""

    code = "BindError"


class PodReplaced(BindError):
    """The pod is gone, or another one lives under its name now."""

    code = "PodReplaced"


class BoundElsewhere(BindError):
    """The pod already runs on another node than the one asked."""

    code = "BoundElsewhere"


class NoLongerFits(BindError):
    """What filter found free has been taken since."""

    code = "NoLongerFits"


class NotActive(BindError):
    """This replica may not act on the cluster: it does not hold the lease, or does not know enough yet."""

    code = "NotActive"


class KubeError(ExtenderError):
    """The API server answered no, or not at all."""

    code = "KubeError"


class KubeRefused(KubeError):
    """The API server answered a definite no; ``status`` is the HTTP status, 400 to 599."""

    code = "KubeRefused"

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(f"{status}: {message}")


class OutcomeUnknown(KubeError):
    """A request was sent and no answer came: it may or may not have happened."""

    code = "OutcomeUnknown"


class KubeUnreachable(KubeError):
    """Nothing was sent: no connection could be made, or the deadline had passed before."""

    code = "KubeUnreachable"


class UnreadableAnswer(KubeError):
    """The API server answered success with a body that is too long, or not what the call promises."""

    code = "UnreadableAnswer"
