"""Are devices oversubscribed? Judged from pod annotations and the devices' sizes alone, without asking the extender."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from extender.allocation import ALLOCATION_KEY, DEFAULT_PREFIX, decode_allocation
from extender.errors import InvalidAllocation
from extender.objects import Pod


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one device has: MiB, and thousandths of a whole GPU's compute."""

    node: str
    memory_mib: int
    compute_milli: int


@dataclass(frozen=True, slots=True)
class Finding:
    """What the annotations of the pods add up to.

    ``oversubscribed``   devices with more given away than they have, and UUIDs that are on another node or nowhere
    ``unreadable``       pods whose allocation cannot be read
    ``holders``          pods that hold devices
    ``compute_share``    0..1 of all compute given away; more where devices are oversubscribed
    """

    oversubscribed: frozenset[str]
    unreadable: int
    holders: int
    compute_share: float
    memory_share: float


def audit(pods: Iterable[Mapping[str, object]], devices: Mapping[str, Capacity]) -> Finding:
    """Add up what bound pods that did not end hold, and compare it with what the devices (by UUID) have."""
    memory: dict[str, int] = dict.fromkeys(devices, 0)
    compute: dict[str, int] = dict.fromkeys(devices, 0)
    astray: set[str] = set()
    unreadable = holders = 0
    for pod in (msgspec.convert(each, Pod) for each in pods):
        text = pod.annotations.get(DEFAULT_PREFIX + ALLOCATION_KEY)
        if text is None or not pod.spec.node_name or pod.is_terminal:
            continue
        try:
            shares = decode_allocation(text).shares()
        except InvalidAllocation:
            unreadable += 1
            continue
        holders += bool(shares)
        for share in shares:
            if share.uuid not in devices or devices[share.uuid].node != pod.spec.node_name:
                astray.add(share.uuid)
                continue
            memory[share.uuid] += share.memory_mib
            compute[share.uuid] += share.compute_milli
    over = {
        uuid
        for uuid, capacity in devices.items()
        if memory[uuid] > capacity.memory_mib or compute[uuid] > capacity.compute_milli
    }
    return Finding(
        oversubscribed=frozenset(over | astray),
        unreadable=unreadable,
        holders=holders,
        compute_share=sum(compute.values()) / max(sum(each.compute_milli for each in devices.values()), 1),
        memory_share=sum(memory.values()) / max(sum(each.memory_mib for each in devices.values()), 1),
    )
