"""What a mix of pods will want of a fleet's kinds of device, in numbers that planning needs.

Everything is worked out once for a mix and the kinds of a fleet; nothing here looks at what is free.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scoring.catalog import DeviceKind
from scoring.fleet import BoolArray
from scoring.request import WHOLE_MILLI
from scoring.shape_needs import need_on_kind
from scoring.workload import Mix, Shape
from scoring.worth import Worth, rest_worth

CPU_TIER_MILLI = 16_000
"""Shapes of several devices are told apart by their CPU in such steps, rounded up."""

_MOST_SLOT_SHAPES = 16
_MOST_GROUPS = 32


@dataclass(frozen=True, slots=True)
class SlotShape:
    """Pods that want ``count`` untouched devices of one node and ``cpu_milli`` of its CPU, on the kinds marked.

    ``share`` is the part of all GPU pods that want so much or more.
    """

    count: int
    cpu_milli: int
    kinds: BoolArray
    share: float


@dataclass(frozen=True, slots=True)
class Group:
    """Pods that accept the same kinds: their ``share`` of the GPU demand, and CPU (1/1000 core) for each device."""

    kinds: BoolArray
    share: float
    cpu_per_device: float


@dataclass(frozen=True, slots=True)
class Demand:
    """Demand of GPU pods. Arrays over kinds have ``kinds + 1`` entries; entry 0 stands for kinds that nobody knew.

    ``cpu_per_device``     1/1000 core that pods take with one device's worth of GPU
    ``cpu_variance``       how much that varies from device to device, (1/1000 core) squared
    ``gpu_milli_per_pod``  thousandths of a device that a pod takes on average
    ``worth``              shape (kinds + 1, 1001): what a rest of a device is worth (``worth.rest_worth``)
    """

    cpu_per_device: float
    cpu_variance: float
    gpu_milli_per_pod: float
    worth: Worth
    slots: tuple[SlotShape, ...]
    groups: tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class _Wish:
    shape: Shape
    weight: float
    needs: npt.NDArray[np.int64]
    """Thousandths of one device of each kind, 0 where it is of no use."""

    @property
    def kinds(self) -> BoolArray:
        return np.asarray(self.needs > 0, np.bool_)

    @property
    def gpu_milli(self) -> float:
        """Thousandths of devices that the shape takes, the mean over kinds that it accepts."""
        return self.shape.count * float(self.needs[self.kinds].mean())


def demand_of(mix: Mix, kinds: tuple[DeviceKind, ...]) -> Demand | None:
    """Return the demand of a mix, or None where it holds no pod that some kind can serve."""
    wishes = [wish for shape, weight in mix.shapes if (wish := _wish(shape, weight, kinds)).kinds.any()]
    if not wishes:
        return None
    pods = sum(wish.weight for wish in wishes)
    gpu = sum(wish.weight * wish.gpu_milli for wish in wishes)
    cpu = sum(wish.weight * wish.shape.cpu_milli for wish in wishes)
    per_device = cpu / gpu * WHOLE_MILLI
    off = sum(wish.weight * (wish.shape.cpu_milli - per_device * wish.gpu_milli / WHOLE_MILLI) ** 2 for wish in wishes)
    return Demand(
        cpu_per_device=per_device,
        cpu_variance=off / gpu * WHOLE_MILLI,
        gpu_milli_per_pod=gpu / pods,
        worth=_worth(wishes, len(kinds)),
        slots=_slots(wishes, pods),
        groups=_groups(wishes, gpu),
    )


def _wish(shape: Shape, weight: float, kinds: tuple[DeviceKind, ...]) -> _Wish:
    needs = [0, *(need_on_kind(shape, kind) or 0 for kind in kinds)]
    return _Wish(shape, weight, np.array(needs, np.int64))


def _worth(wishes: list[_Wish], kinds: int) -> Worth:
    """Solve once for each different demand: where pods ask compute, all kinds are asked for alike."""
    tables = np.zeros((kinds + 1, WHOLE_MILLI + 1), np.float32)
    known: dict[tuple[tuple[int, float], ...], Worth] = {}
    for kind in range(1, kinds + 1):
        sizes: Counter[int] = Counter()
        for wish in wishes:
            need = int(wish.needs[kind])
            if need:
                sizes[need] += wish.weight * wish.shape.count * need  # type: ignore[assignment]
        key = tuple(sorted(sizes.items()))
        if key not in known:
            known[key] = rest_worth(sizes)
        tables[kind] = known[key]
    return tables


def _slots(wishes: list[_Wish], pods: float) -> tuple[SlotShape, ...]:
    several = [wish for wish in wishes if wish.shape.count > 1 and wish.needs.max() == WHOLE_MILLI]
    weights: Counter[tuple[int, int]] = Counter()
    accepted: dict[tuple[int, int], BoolArray] = {}
    for wish in several:
        key = wish.shape.count, -(-wish.shape.cpu_milli // CPU_TIER_MILLI) * CPU_TIER_MILLI
        weights[key] += wish.weight  # type: ignore[assignment]
        accepted[key] = accepted.get(key, np.zeros_like(wish.kinds)) | wish.kinds
    made = []
    for count, cpu in sorted(key for key, _ in weights.most_common(_MOST_SLOT_SHAPES)):
        share = sum(weight for key, weight in weights.items() if key[0] >= count and key[1] >= cpu)
        made.append(SlotShape(count, cpu, accepted[count, cpu], share / pods))
    return tuple(made)


def _groups(wishes: list[_Wish], gpu: float) -> tuple[Group, ...]:
    by_kinds: dict[bytes, list[_Wish]] = {}
    for wish in wishes:
        by_kinds.setdefault(wish.kinds.tobytes(), []).append(wish)
    groups = [_group(members, gpu) for members in by_kinds.values()]
    return tuple(sorted(groups, key=lambda group: -group.share)[:_MOST_GROUPS])


def _group(members: list[_Wish], gpu: float) -> Group:
    own = sum(wish.weight * wish.gpu_milli for wish in members)
    cpu = sum(wish.weight * wish.shape.cpu_milli for wish in members)
    return Group(members[0].kinds, own / gpu, cpu / own * WHOLE_MILLI)
