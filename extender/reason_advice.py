"""What each reason means to a pod's author, and what to do: the words of ``docs/reasons.md``, for explanations.

A test holds the two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scoring.status import Reason


@dataclass(frozen=True, slots=True)
class Advice:
    """What a reason means, and what its reader can do."""

    means: str
    do: str


ADVICE: Mapping[Reason, Advice] = {
    Reason.UNKNOWN_NODE: Advice(
        "the scheduler knows the node, Tangram's watch has not seen it yet",
        "wait a moment; if it stays, look at Tangram's connection to the API server",
    ),
    Reason.NO_DEVICES: Advice(
        "the agent reported no GPU, or none is expected there",
        "nothing: the node is none for this pod",
    ),
    Reason.NO_REPORT: Advice(
        "nothing was heard for longer than reports may age; pods that run there keep their share",
        "look at the agent's pod on the node",
    ),
    Reason.NODE_CONFLICTED: Advice(
        "pods hold devices that the agent does not see, or more than a device has",
        "an operator compares the pods' annotations with the agent's report",
    ),
    Reason.NO_HEALTHY_DEVICE: Advice(
        "devices that are large enough are out: a fault, a reset under way, cordoned by an operator",
        "wait for recovery, or have the device seen to",
    ),
    Reason.NO_MATCHING_DEVICE: Advice(
        "fewer devices than one container asks meet every condition (`gpu-architecture`, `gpu-product`, ...)",
        "drop a condition; the explanation names those that fail on each device",
    ),
    Reason.NO_SHARING_MODE: Advice(
        "devices are in another mode: time-slicing, MPS, MIG, or left to NVIDIA's device plugin",
        "list more kinds in `gpu-sharing`, or have an operator change the mode",
    ),
    Reason.TOO_FEW_DEVICES: Advice(
        "the node has fewer devices than one container asks, or than all need whole at one time",
        "ask for fewer, or split the pod",
    ),
    Reason.DEVICE_TOO_SMALL: Advice(
        "even an empty device would not hold the share: memory is per device, never added up",
        "ask for less of each device, or for more devices",
    ),
    Reason.INSUFFICIENT_MEMORY: Advice(
        "what is left on each device, after pods, foreign processes and the driver, is less than asked",
        "wait, or ask for the amount that the explanation names",
    ),
    Reason.INSUFFICIENT_COMPUTE: Advice(
        "memory would do, the per cent of SMs would not",
        "wait, or ask for less `gpu-compute`",
    ),
    Reason.NO_FREE_DEVICE: Advice(
        "whole or exclusive devices are asked, and each has a pod or a foreign process on it",
        "wait, or ask for a share",
    ),
    Reason.CONTAINERS_DO_NOT_FIT: Advice(
        "each container would fit alone, all of them at one time would not",
        "wait, or ask for less",
    ),
    Reason.TOPOLOGY: Advice(
        "enough devices are free, but not within one NVLink group or NUMA node, as `gpu-topology` demands",
        "drop `gpu-topology`, or wait",
    ),
    Reason.RESERVED_FOR_NOMINATED: Advice(
        "pods were evicted for another pod, which has not been bound yet",
        "wait",
    ),
    Reason.NO_PLUGIN_REPLICA: Advice(
        "the pod asks for `nvidia.com/...`, and all replicas of the node are given out",
        "wait",
    ),
}
