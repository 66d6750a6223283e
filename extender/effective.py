"""Kubernetes' effective request of a pod: what its containers take together at their busiest moment.

Init containers run one after the other and beside the sidecars that were started before them; then the sidecars and the
other containers run together. The larger of the two counts. Source: ``AggregateContainerRequests`` and ``PodRequests``
in ``k8s.io/component-helpers/resource/helpers.go``; sidecars as in KEP-753, pod-level resources as in KEP-2837.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from extender.quantity import ceil_mib, ceil_milli, parse_quantity
from scoring.request import ContainerKind, PodRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_MILLI_PER_PERCENT = 10


class Totals(NamedTuple):
    """What Kubernetes adds up for one pod: devices, MiB and per cent over all of its devices."""

    gpu: int
    memory_mib: int
    compute_percent: int


class HostSide(NamedTuple):
    """What a pod takes of a node beside GPUs: thousandths of a CPU and MiB, both rounded up."""

    cpu_milli: int
    memory_mib: int


def effective_amount(parts: Iterable[tuple[ContainerKind, Fraction | int]]) -> Fraction:
    """Return the effective amount of one resource from (kind, amount) of each container, init containers in order."""
    running = sidecars = peak = Fraction(0)
    for kind, amount in parts:
        match kind:
            case ContainerKind.APP:
                running += amount
            case ContainerKind.SIDECAR:
                sidecars += amount
                peak = max(peak, sidecars)
            case ContainerKind.INIT:
                peak = max(peak, sidecars + amount)
    return max(running + sidecars, peak)


def effective_totals(request: PodRequest) -> Totals:
    """Return the totals over all devices that Kubernetes' own arithmetic gives for a completed request.

    A dimension that the pod left out counts 0 there: Kubernetes knows nothing of what follows the other one.
    """
    asks = request.containers
    return Totals(
        int(effective_amount((ask.kind, ask.count) for ask in asks)),
        int(effective_amount((ask.kind, ask.count * (ask.memory_mib or 0)) for ask in asks)),
        int(effective_amount((ask.kind, ask.count * (ask.compute_milli or 0)) for ask in asks)) // _MILLI_PER_PERCENT,
    )


def host_side(
    containers: Sequence[tuple[str, ContainerKind, Mapping[str, str]]],
    overhead: Mapping[str, str],
    pod_requests: Mapping[str, str],
    pod_limits: Mapping[str, str],
) -> HostSide:
    """Return the effective CPU and memory of a pod from (name, kind, requests) of its containers.

    ``pod_requests`` and ``pod_limits`` are the pod-level resources: a request there stands for the containers' sum, a
    limit only where no container asks. Raises InvalidRequest for an amount that is no quantity.
    """

    def amount(resource: str) -> Fraction:
        parts = [
            (kind, parse_quantity(requests[resource], f"{resource} of container {name}"))
            for name, kind, requests in containers
            if resource in requests
        ]
        level = pod_requests.get(resource, "" if parts else pod_limits.get(resource, ""))
        own = parse_quantity(level, f"{resource} of the pod") if level else effective_amount(parts)
        extra = overhead.get(resource)
        return own + (parse_quantity(extra, f"{resource} of the pod's overhead") if extra else 0)

    return HostSide(ceil_milli(amount("cpu")), ceil_mib(amount("memory")))
