"""The verbs of the core: filter, score and place are three readings of one evaluation.

``evaluate`` looks at every node of a fleet: filter reads its verdicts, prioritize its scores. ``allocation_on`` looks
at one node the same way and names the shares: bind takes them. Nothing here remembers anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scoring.feasibility import NO_REASON, REASONS
from scoring.fleet import Changes, Fleet, FloatArray, IntArray, ModeCode
from scoring.helper import Helper
from scoring.host_only import place_host_only
from scoring.needs import need_of, takes_whole_device
from scoring.outlook import Outlook
from scoring.phases import phases
from scoring.placement import Placements, place
from scoring.plugin import place_on_plugin
from scoring.registry import Policy
from scoring.request import Allocation, ContainerAsk, ContainerKind, PodRequest, Share, SharingMode
from scoring.status import FITS, Code, Verdict

HIGHEST_LEVEL = 10
"""MaxExtenderPriority of kube-scheduler's extender API."""


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A placement on one node: what each container gets, and what each device books for the pod.

    ``booked`` holds (slot, MiB, thousandths), one entry a device: the most that any phase of the pod takes of it.
    """

    allocation: Allocation
    booked: tuple[tuple[int, int, int], ...]

    def shares(self, row: int) -> dict[tuple[int, int], tuple[int, int, int]]:
        """Return what it adds to a node's devices, as ``Fleet.with_shares`` takes it."""
        return {(row, slot): (mib, milli, 1) for slot, mib, milli in self.booked}


def evaluate(request: PodRequest, fleet: Fleet, policy: Policy, outlook: Outlook) -> Placements:
    """Return verdict and score of every node of the fleet, in row order.

    A pod that asks for no device fits everywhere as far as GPUs go, and is scored by the CPU that it takes. One that
    asks NVIDIA's device plugin is judged by what that offers.
    """
    if request.plugin:
        return place_on_plugin(request, fleet, policy, outlook)
    if not request.containers:
        return place_host_only(request, fleet, outlook)
    return place(request, fleet, policy, outlook)


def verdict(placements: Placements, row: int) -> Verdict:
    """Return the verdict for one row of an evaluation."""
    code, number = Code(int(placements.code[row])), int(placements.reason[row])
    return FITS if number == NO_REASON else Verdict(code, REASONS[number])


def levels_of_rows(
    score: FloatArray, order: npt.NDArray[np.uint32], rows: npt.NDArray[np.intp], helper: Helper | None
) -> IntArray:
    """Return the ``levels`` of some rows of a fleet, on all of which a pod fits; by a helper where there is one."""
    if helper is not None:
        return helper.levels(score, order, rows, HIGHEST_LEVEL)
    return levels(score[rows], order[rows])


def levels(score: FloatArray, order: npt.NDArray[np.uint32]) -> IntArray:
    """Return kube-scheduler's integers 0..10 for the scores of nodes that fit.

    Exactly one node gets 10: the highest score, and among equals the lowest ``order``, because kube-scheduler draws
    among ties. The others share 0..9 in proportion. An empty input gives an empty answer.
    """
    if not len(score):
        return np.zeros(0, np.int32)
    lowest, highest = score.min(), score.max()
    spread = highest - lowest
    below = np.zeros(len(score), np.int32)
    if spread > 0:
        below = np.floor((score - lowest) / spread * (HIGHEST_LEVEL - 1)).astype(np.int32)
    else:
        below[:] = HIGHEST_LEVEL - 1
    best = np.flatnonzero(score == highest)
    below[best[order[best].argmin()]] = HIGHEST_LEVEL
    return below


def allocation_on(
    request: PodRequest, fleet: Fleet, row: int, policy: Policy, outlook: Outlook, changes: Changes | None = None
) -> PlacedPod | Verdict:
    """Return the placement on one node as shares, or the verdict that refuses it.

    With ``changes`` it is the placement that there would be with these other bookings.
    """
    node = fleet.part(np.array([row]), changes or {})
    placements = evaluate(request, node, policy, outlook)
    found = verdict(placements, 0)
    if not found.fits:
        return found
    uuids = node.uuids[0]
    containers = tuple(
        (ask.name, _shares(request, ask, node, slots[:, 0].tolist()))
        for ask, slots in zip(request.containers, placements.slots, strict=True)
    )
    allocation = Allocation(containers, policy.name)
    kinds = {ask.name: ask.kind for ask in request.containers}
    slot_of = {uuid: slot for slot, uuid in enumerate(uuids)}
    booked = booked_by(allocation, kinds)
    return PlacedPod(allocation, tuple((slot_of[uuid], *amounts) for uuid, amounts in sorted(booked.items())))


def booked_by(allocation: Allocation, kinds: Mapping[str, ContainerKind]) -> dict[str, tuple[int, int]]:
    """Return MiB and thousandths that each device books for an allocation: the most that any phase of the pod takes.

    ``kinds`` says how each container runs, in the pod's order; a container that it does not name counts as an app
    container, which never books too little.
    """
    shares = dict(allocation.containers)
    names = [name for name in kinds if name in shares] + [name for name in shares if name not in kinds]
    asks = [ContainerAsk(name, compute_milli=1, kind=kinds.get(name, ContainerKind.APP)) for name in names]
    booked: dict[str, tuple[int, int]] = {}
    for phase in phases(asks):
        running = (share for at in (*phase.beside, *phase.placed_now) for share in shares[names[at]])
        for uuid, (memory_mib, compute_milli) in _sums(running).items():
            most = booked.get(uuid, (0, 0))
            booked[uuid] = max(most[0], memory_mib), max(most[1], compute_milli)
    return booked


def _sums(shares: Iterable[Share]) -> dict[str, tuple[int, int]]:
    sums: dict[str, tuple[int, int]] = {}
    for share in shares:
        memory_mib, compute_milli = sums.get(share.uuid, (0, 0))
        sums[share.uuid] = memory_mib + share.memory_mib, compute_milli + share.compute_milli
    return sums


def _shares(request: PodRequest, ask: ContainerAsk, node: Fleet, slots: list[int]) -> tuple[Share, ...]:
    """Return an ask's shares on the only node of a fleet. One that takes all of a device is shared with nobody."""
    need, takes_all = need_of(request, ask, node), takes_whole_device(request, ask)
    shares = []
    for slot in slots:
        mode = ModeCode(int(node.mode[slot, 0]))
        alone = takes_all[mode] and mode is not ModeCode.MIG
        sharing = SharingMode.EXCLUSIVE if alone else mode.sharing
        shares.append(Share(node.uuids[0][slot], int(need.mib[slot, 0]), int(need.milli[slot, 0]), sharing))
    return tuple(shares)
