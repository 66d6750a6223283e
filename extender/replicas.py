"""What NVIDIA's device plugin offers and has given out on a node, spread over the devices behind each resource.

Kubelet says how many replicas of a resource are given out, not of which device, and its agent asks it every fifteen
seconds. The books know every pod that was bound and asks for some. The greater of both is what is taken: a pod that was
just bound is not in kubelet's number yet, a pod that nobody can watch only there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from node_agent.report import PluginResource, Report
from scoring.request import WHOLE_MILLI, PluginAsk


@dataclass(frozen=True, slots=True)
class Replicas:
    """One device's part of a resource; only sums over the resource's devices mean something."""

    resource: str
    offered: int
    taken: int


def replicas_of(report: Report, present: Collection[str], booked: Mapping[str, int]) -> dict[str, Replicas]:
    """Return the replicas by UUID of the devices that are ``present``; ``booked`` is what bound pods ask by resource.

    Replicas of devices that are not present are not offered. A device that two resources name belongs to the first.
    """
    found: dict[str, Replicas] = {}
    for resource in report.plugin:
        offered = dict(zip(resource.uuids, _evenly(resource.replicas, len(resource.uuids)), strict=True))
        here = [uuid for uuid in resource.uuids if uuid in present and uuid not in found]
        taken = _evenly(taken_of(resource, booked), len(here))
        for uuid, part in zip(here, taken, strict=True):
            found[uuid] = Replicas(resource.resource, offered[uuid], part)
    return found


def taken_of(resource: PluginResource, booked: Mapping[str, int]) -> int:
    """Return how many replicas of a resource are taken: given out by kubelet, or promised to bound pods."""
    return max(resource.used, booked.get(resource.resource, 0))


def _evenly(total: int, parts: int) -> list[int]:
    """Return ``parts`` numbers that differ by 1 at most and sum to ``total``."""
    each, more = divmod(total, parts) if parts else (0, 0)
    return [each + (number < more) for number in range(parts)]


def expected_load(replicas: Mapping[str, Replicas], asks: Iterable[PluginAsk]) -> list[tuple[str, int]]:
    """Return what a pod will load each device with on average, in thousandths: kubelet may choose any of a resource."""
    loads = []
    for ask in asks:
        behind = {uuid: each for uuid, each in replicas.items() if each.resource == ask.resource}
        offered = max(sum(each.offered for each in behind.values()), 1)
        loads += [(uuid, min(WHOLE_MILLI * ask.count // offered, WHOLE_MILLI)) for uuid in behind]
    return loads
