"""The outcome of looking at one node: a code, and a reason from a small closed vocabulary.

kube-scheduler counts equal reason strings and cuts the event at 1,024 characters, so a sentence names no node and no
amount and is at most 80 characters; the numbers are in the Diagnosis. ``docs/reasons.md`` has a row for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class Code(IntEnum):
    """How a node fares, ordered from worst to best, so that ``min`` and ``max`` mean "worst of" and "best of"."""

    ERROR = 0
    UNRESOLVABLE = 1
    UNSCHEDULABLE = 2
    FIT = 3


class Reason(StrEnum):
    """Why a node was refused; the value is the stable code, ``sentence`` is what a person reads."""

    UNKNOWN_NODE = "UnknownNode"
    NO_DEVICES = "NoDevices"
    NO_REPORT = "NoFreshReport"
    NODE_CONFLICTED = "NodeConflicted"
    NO_HEALTHY_DEVICE = "NoHealthyDevice"
    NO_MATCHING_DEVICE = "NoMatchingDevice"
    NO_SHARING_MODE = "NoSharingMode"
    TOO_FEW_DEVICES = "TooFewDevices"
    DEVICE_TOO_SMALL = "DeviceTooSmall"
    INSUFFICIENT_MEMORY = "InsufficientFreeMemory"
    INSUFFICIENT_COMPUTE = "InsufficientFreeCompute"
    NO_FREE_DEVICE = "NoFreeWholeDevice"
    CONTAINERS_DO_NOT_FIT = "ContainersDoNotFitTogether"
    TOPOLOGY = "TopologyNotMet"
    RESERVED_FOR_NOMINATED = "ReservedForNominatedPod"
    NO_PLUGIN_REPLICA = "NoFreePluginReplica"

    @property
    def sentence(self) -> str:
        """Return the words that kube-scheduler counts and shows."""
        return _SENTENCES[self]


_SENTENCES: dict[Reason, str] = {
    Reason.UNKNOWN_NODE: "node is not known to Tangram",
    Reason.NO_DEVICES: "node has no GPU",
    Reason.NO_REPORT: "no fresh report from the node's GPU agent",
    Reason.NODE_CONFLICTED: "node's bookings and its agent contradict each other",
    Reason.NO_HEALTHY_DEVICE: "too few healthy GPUs",
    Reason.NO_MATCHING_DEVICE: "too few GPUs meet the pod's conditions",
    Reason.NO_SHARING_MODE: "too few GPUs offer the kind of sharing asked",
    Reason.TOO_FEW_DEVICES: "request needs more GPUs than the node has",
    Reason.DEVICE_TOO_SMALL: "request is larger than any GPU of the node",
    Reason.INSUFFICIENT_MEMORY: "too little free GPU memory on each GPU",
    Reason.INSUFFICIENT_COMPUTE: "too little free GPU compute on each GPU",
    Reason.NO_FREE_DEVICE: "too few GPUs that nobody uses",
    Reason.CONTAINERS_DO_NOT_FIT: "the pod's containers do not fit together on the free GPUs",
    Reason.TOPOLOGY: "no set of free GPUs is close enough together",
    Reason.RESERVED_FOR_NOMINATED: "free GPU is kept for a pod of higher priority",
    Reason.NO_PLUGIN_REPLICA: "NVIDIA's device plugin has no free replica",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome for one node. ``reason`` is None exactly when ``code`` is FIT."""

    code: Code
    reason: Reason | None = None

    def __post_init__(self) -> None:
        if (self.reason is None) != (self.code is Code.FIT):
            msg = f"a verdict of {self.code.name} with reason {self.reason}"
            raise ValueError(msg)

    @property
    def fits(self) -> bool:
        """Return whether the request can be placed on the node now."""
        return self.code is Code.FIT


FITS = Verdict(Code.FIT)
