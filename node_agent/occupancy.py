"""How the memory in use on one device divides up between our pods and everybody else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from node_agent.readings import ProcessReading, Tenant
from node_agent.report import Booking, Usage

UNATTRIBUTED_NOISE_MIB = 64
"""Memory in use that no listed process explains is ignored up to here: contexts and rounding, not a tenant."""

FindTenant = Callable[[int], Tenant | None]


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How the memory in use on one device divides up: per pod and container of ours, and what is foreign."""

    usage: tuple[Usage, ...]
    foreign_mib: int


def occupancy_of(
    uuid: str,
    processes: Iterable[ProcessReading],
    used_mib: int | None,
    booked: Sequence[Booking],
    find_tenant: FindTenant,
) -> Occupancy:
    """Divide the memory in use on one device into each tenant's and what is foreign.

    A process of a pod that has no booking on this very device is foreign: the books leave no room for it. Memory that
    no process explains (an MPS server's, managed memory, processes hidden from us) is taken to be our pods' up to what
    they booked and do not visibly use, foreign beyond that.
    """
    pods = {booking.pod_uid for booking in booked}
    memory: dict[tuple[str, str], int] = defaultdict(int)
    ratios: dict[tuple[str, str], float] = {}
    foreign_mib = explained_mib = 0
    for process in processes:
        tenant = find_tenant(process.pid)
        held_mib = process.memory_mib or 0
        if tenant is not None and tenant.is_mps_server:
            continue
        explained_mib += held_mib
        if tenant is None or tenant.pod_uid not in pods:
            foreign_mib += held_mib
            continue
        key = (tenant.pod_uid, tenant.container)
        memory[key] += held_mib
        if process.sm_ratio is not None:
            ratios[key] = min(1.0, ratios.get(key, 0.0) + process.sm_ratio)
    foreign_mib += _unexplained(used_mib, explained_mib, booked, sum(memory.values()))
    usage = tuple(
        Usage(
            pod_uid=pod_uid,
            uuid=uuid,
            memory_mib=held_mib,
            container=container,
            sm_ratio=ratios.get((pod_uid, container)),
        )
        for (pod_uid, container), held_mib in sorted(memory.items())
    )
    return Occupancy(usage, foreign_mib)


def _unexplained(used_mib: int | None, explained_mib: int, booked: Sequence[Booking], measured_mib: int) -> int:
    if used_mib is None:
        return 0
    unexplained_mib = used_mib - explained_mib
    slack_mib = max(0, sum(booking.memory_mib for booking in booked) - measured_mib)
    beyond_mib = unexplained_mib - slack_mib
    return beyond_mib if beyond_mib > UNATTRIBUTED_NOISE_MIB else 0
