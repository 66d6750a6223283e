"""How the memory in use on one device divides up between our pods and everybody else."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from node_agent.readings import ProcessReading, Tenant
from node_agent.report import Booking, Usage

UNATTRIBUTED_NOISE_MIB = 64
"""Memory in use that no listed process explains is ignored up to here: contexts and rounding, not a tenant."""

FindTenant = Callable[[int], Tenant | None]


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How the memory in use on one device divides up: per pod and container of ours, and what is foreign.

    ``misplaced`` is what pods of ours use here that booked other devices of the node; it is foreign, too.
    """

    usage: tuple[Usage, ...]
    foreign_mib: int
    misplaced: tuple[Usage, ...] = ()


def occupancy_of(
    uuid: str,
    processes: Iterable[ProcessReading],
    used_mib: int | None,
    booked: Sequence[Booking],
    find_tenant: FindTenant,
    known_pods: Collection[str] = (),
) -> Occupancy:
    """Divide the memory in use on one device into each tenant's and what is foreign.

    A process of a pod that has no booking on this very device is foreign: the books leave no room for it. Where the pod
    is one of ``known_pods`` it got another device than it booked (node-side.md 6, row 43), which is told. Memory that
    no process explains (an MPS server's, managed memory, processes hidden from us) is taken to be our pods' up to what
    they booked and do not visibly use, foreign beyond that.
    """
    pods = {booking.pod_uid for booking in booked}
    ours, misplaced = _Sums(), _Sums()
    foreign_mib = explained_mib = 0
    for process in processes:
        tenant = find_tenant(process.pid)
        held_mib = process.memory_mib or 0
        if tenant is not None and tenant.is_mps_server:
            continue
        explained_mib += held_mib
        if tenant is None or tenant.pod_uid not in pods:
            foreign_mib += held_mib
            if tenant is not None and tenant.pod_uid in known_pods:
                misplaced.add(tenant, process)
            continue
        ours.add(tenant, process)
    foreign_mib += _unexplained(used_mib, explained_mib, booked, sum(ours.memory_mib.values()))
    return Occupancy(ours.usage(uuid), foreign_mib, misplaced.usage(uuid))


@dataclass(slots=True)
class _Sums:
    """Adds up what processes use, by pod and container."""

    memory_mib: dict[tuple[str, str], int] = field(default_factory=dict)
    sm_ratios: dict[tuple[str, str], float] = field(default_factory=dict)

    def add(self, tenant: Tenant, process: ProcessReading) -> None:
        key = (tenant.pod_uid, tenant.container)
        self.memory_mib[key] = self.memory_mib.get(key, 0) + (process.memory_mib or 0)
        if process.sm_ratio is not None:
            self.sm_ratios[key] = min(1.0, self.sm_ratios.get(key, 0.0) + process.sm_ratio)

    def usage(self, uuid: str) -> tuple[Usage, ...]:
        return tuple(
            Usage(pod_uid=key[0], uuid=uuid, memory_mib=mib, container=key[1], sm_ratio=self.sm_ratios.get(key))
            for key, mib in sorted(self.memory_mib.items())
        )


def _unexplained(used_mib: int | None, explained_mib: int, booked: Sequence[Booking], measured_mib: int) -> int:
    if used_mib is None:
        return 0
    unexplained_mib = used_mib - explained_mib
    slack_mib = max(0, sum(booking.memory_mib for booking in booked) - measured_mib)
    beyond_mib = unexplained_mib - slack_mib
    return beyond_mib if beyond_mib > UNATTRIBUTED_NOISE_MIB else 0
