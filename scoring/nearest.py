"""The nearest change of a request that would make it fit, found by asking again.

Each change is tried on its own: less memory, less compute, fewer devices, one condition dropped, any topology, shared
instead of exclusive. Amounts are the largest that fit somewhere now; what fits with more fits with less, so a bisection
finds them. Some forty evaluations, bounded by ``MOST_TRIALS``; for explanations, never on the way of a decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from scoring.conditions import ANY_DEVICE, Conditions
from scoring.fleet import Fleet
from scoring.outlook import Outlook
from scoring.placement import place
from scoring.registry import Policy
from scoring.request import ContainerAsk, PodRequest, SharingMode, Topology
from scoring.status import Code

CONDITION_FIELDS: Mapping[str, tuple[str, ...]] = {
    "gpu-architecture": ("architectures",),
    "gpu-product": ("product_include", "product_exclude"),
    "gpu-compute-capability": ("compute_capability",),
    "gpu-total-memory": ("total_memory",),
    "gpu-driver": ("driver",),
    "gpu-cuda": ("cuda",),
    "gpu-features": ("features", "features_exclude"),
    "gpu-uuid": ("uuid_include", "uuid_exclude"),
    "mig-profile": ("mig_include", "mig_exclude"),
}
"""Annotation without prefix -> the fields of ``Conditions`` that it fills."""


MOST_TRIALS = 64
"""Smaller amounts that are tried for one request: enough for all of one container, some of many containers."""

_MILLI_PER_PERCENT = 10


class ChangeKind(StrEnum):
    """What would have to change."""

    LESS_MEMORY = "less-memory"
    LESS_COMPUTE = "less-compute"
    FEWER_DEVICES = "fewer-devices"
    DROP_CONDITION = "drop-condition"
    ANY_TOPOLOGY = "any-topology"
    SHARED = "shared"


@dataclass(frozen=True, slots=True)
class Change:
    """One change that makes the request fit now.

    ``container``  whose ask it is, None for the whole pod        ``nodes``  how many nodes would then take the pod
    ``text``       the change in words, such as ``ask 6144 MiB of each GPU (gpu-memory: 12288)``
    """

    kind: ChangeKind
    text: str
    nodes: int
    container: str | None = None


@dataclass(slots=True)
class _Trials:
    """How many more smaller amounts may be tried for one request."""

    left: int

    def take(self) -> bool:
        """Return whether there is one more, and count it."""
        self.left -= 1
        return self.left >= 0


@dataclass(frozen=True, slots=True)
class Trial:
    """Where and by which preference changed requests are tried."""

    fleet: Fleet
    policy: Policy
    outlook: Outlook

    def nodes(self, request: PodRequest) -> int:
        """Return how many nodes take the request now."""
        return int((place(request, self.fleet, self.policy, self.outlook).code == Code.FIT).sum())


def nearest_changes(request: PodRequest, trial: Trial) -> tuple[Change, ...]:
    """Return every single change after which a request that fits nowhere fits; empty where none of them is enough."""
    at_large = tuple(_changes(request, trial))
    left = _Trials(MOST_TRIALS)
    asks = enumerate(request.containers)
    smaller = [change for at, ask in asks for change in _smaller(request, at, ask, trial, left)]
    return (*smaller, *at_large)


def _changes(request: PodRequest, trial: Trial) -> Iterator[Change]:
    for key, text in request.conditions.describe():
        changed = replace(request, conditions=without_condition(request.conditions, key))
        yield from _tried(ChangeKind.DROP_CONDITION, f"drop {key} {text}", changed, trial)
    if request.topology is not Topology.ANY:
        changed = replace(request, topology=Topology.ANY)
        yield from _tried(ChangeKind.ANY_TOPOLOGY, f"drop gpu-topology {request.topology}", changed, trial)
    if SharingMode.TIME_SLICING not in request.sharing:
        changed = replace(request, sharing=request.sharing | {SharingMode.TIME_SLICING})
        yield from _tried(ChangeKind.SHARED, "accept gpu-sharing time-slicing", changed, trial)


def without_condition(conditions: Conditions, key: str) -> Conditions:
    """Return the conditions without the one of an annotation, named without prefix."""
    return replace(conditions, **{field: getattr(ANY_DEVICE, field) for field in CONDITION_FIELDS[key]})


def _tried(kind: ChangeKind, text: str, changed: PodRequest, trial: Trial) -> Iterator[Change]:
    nodes = trial.nodes(changed)
    if nodes:
        yield Change(kind, text, nodes)


def _smaller(request: PodRequest, at: int, ask: ContainerAsk, trial: Trial, left: _Trials) -> Iterator[Change]:
    """Yield the largest smaller amounts of one container that fit, each as its author would write it."""

    def with_ask(smaller: ContainerAsk) -> PodRequest:
        return replace(request, containers=(*request.containers[:at], smaller, *request.containers[at + 1 :]))

    for kind, amount, smaller in _amounts(ask):
        most = _largest(amount, lambda value, to=smaller: trial.nodes(with_ask(to(value))) > 0, left)  # type: ignore[misc]
        if most:
            changed = smaller(most)
            yield Change(kind, _words(kind, most, ask), trial.nodes(with_ask(changed)), ask.name)


def _amounts(ask: ContainerAsk) -> Iterator[tuple[ChangeKind, int, Callable[[int], ContainerAsk]]]:
    """Yield what of an ask can be less: its present amount, and the ask with another one."""
    if ask.memory_mib is not None:
        yield ChangeKind.LESS_MEMORY, ask.memory_mib, lambda mib: replace(ask, memory_mib=mib)
    if ask.compute_milli is not None:
        percent = -(-ask.compute_milli // _MILLI_PER_PERCENT)
        yield ChangeKind.LESS_COMPUTE, percent, lambda less: replace(ask, compute_milli=less * _MILLI_PER_PERCENT)
    yield ChangeKind.FEWER_DEVICES, ask.count, lambda count: replace(ask, count=count)


def _words(kind: ChangeKind, amount: int, ask: ContainerAsk) -> str:
    if kind is ChangeKind.LESS_MEMORY:
        return f"ask {amount} MiB of each GPU (gpu-memory: {amount * ask.count})"
    if kind is ChangeKind.LESS_COMPUTE:
        return f"ask {amount} % of each GPU (gpu-compute: {amount * ask.count})"
    return f"ask fewer GPUs (gpu: {amount})"


def _largest(amount: int, fits: Callable[[int], bool], left: _Trials) -> int:
    """Return the largest value from 1 to below ``amount`` that fits, 0 where none does.

    Where trials run out in between, it is one that fits, if not the largest.
    """
    if amount <= 1 or not left.take() or not fits(1):
        return 0
    low, high = 1, amount
    while high - low > 1 and left.take():
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
