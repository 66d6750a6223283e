"""What each reason means to a pod's author, and what to do: the source of ``docs/reasons.md`` and of explanations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scoring.status import Reason


@dataclass(frozen=True, slots=True)
class Advice:
    """What a reason means, and what its reader can do; whole sentences."""

    means: str
    do: str


ADVICE: Mapping[Reason, Advice] = {
    Reason.UNKNOWN_NODE: Advice(
        "The node is new, or Tangram has not read it from the API server yet.",
        "Wait a few seconds; if it stays, look at the extender's log.",
    ),
    Reason.NO_DEVICES: Advice(
        "The node's agent reports no GPU.",
        "Nothing, if the node is a CPU node. Otherwise check that the driver is loaded (`nvidia-smi` on the node).",
    ),
    Reason.NO_REPORT: Advice(
        "The node has, or had, GPUs, and its agent has not reported lately.",
        "Look at the agent's pod on that node: is it running, can it reach the extender, does the driver answer?",
    ),
    Reason.NODE_CONFLICTED: Advice(
        "A pod on the node holds GPUs that nobody recorded, or its record cannot be read.",
        "Run `tangram audit`; it names the pod. Delete that pod, and have Tangram's scheduler place it.",
    ),
    Reason.NO_HEALTHY_DEVICE: Advice(
        "GPUs of the right kind exist, but too few of them take new pods: failed, cordoned, or on probation.",
        "`tangram top` shows each GPU's health and why. Repair or uncordon it, or wait for other nodes.",
    ),
    Reason.NO_MATCHING_DEVICE: Advice(
        "The pod's annotations (`gpu-product`, `gpu-driver`, ...) leave out too many of the node's GPUs.",
        "Loosen or drop the condition that the explanation names.",
    ),
    Reason.NO_SHARING_MODE: Advice(
        "The pod wants a kind of sharing (`gpu-sharing`) for which the node's GPUs are not set up.",
        "Accept another kind, for example `gpu-sharing: time-slicing`, or have the operator set up MIG or MPS.",
    ),
    Reason.TOO_FEW_DEVICES: Advice(
        "One container asks for more GPUs than the node has. `gpu: 4` means four devices, not four shares of one.",
        "Ask for fewer devices; for a part of one device ask `gpu-memory` or `gpu-compute` without `gpu`.",
    ),
    Reason.DEVICE_TOO_SMALL: Advice(
        "Even an empty GPU of the node is smaller than what is asked of each device.",
        "Ask for less, or spread over several devices with `gpu: 2` or more: amounts are totals, split evenly.",
    ),
    Reason.INSUFFICIENT_MEMORY: Advice(
        "The GPUs are large enough, but other pods or foreign processes hold too much of their memory now.",
        "Ask for less `gpu-memory`, or wait for one of the pods that the explanation names.",
    ),
    Reason.INSUFFICIENT_COMPUTE: Advice(
        "Memory would do, but the compute of each GPU is given away. What you do not ask for follows what you ask for.",
        "Ask for less `gpu-compute`, or name a small `gpu-compute` beside `gpu-memory`.",
    ),
    Reason.NO_FREE_DEVICE: Advice(
        "The pod wants whole GPUs, shared with nobody (`gpu: N` alone means that), and each one has a pod on it.",
        "Ask for a share instead (`gpu-memory: 8192`), or wait for the pods that the explanation names.",
    ),
    Reason.CONTAINERS_DO_NOT_FIT: Advice(
        "Each container would fit alone; together they exceed what is free.",
        "Ask for less in one of the containers, or split the pod.",
    ),
    Reason.TOPOLOGY: Advice(
        "Enough GPUs are free, but no set of them is linked as closely as `gpu-topology` asks.",
        "Use `gpu-topology: any`, or wait until neighbours are free together.",
    ),
    Reason.RESERVED_FOR_NOMINATED: Advice(
        "There is room, but it was just freed for a pod of higher priority.",
        "Wait; that pod starts first. A higher priority class would change the order.",
    ),
    Reason.NO_PLUGIN_REPLICA: Advice(
        "The node's GPUs belong to NVIDIA's device plugin, and all replicas it offers are taken.",
        "Wait, or ask for Tangram's resources instead of `nvidia.com/gpu`.",
    ),
}


def reasons_table() -> str:
    """Return the table of ``docs/reasons.md``."""
    rows = ["| code | what kube-scheduler shows | what it means | what you can do |", "|---|---|---|---|"]
    rows += [
        f"| `{reason.value}` | {reason.sentence} | {ADVICE[reason].means} | {ADVICE[reason].do} |" for reason in Reason
    ]
    return "\n".join(rows) + "\n"
