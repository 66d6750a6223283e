"""The mix of request shapes to expect, as a value.

A shape is what matters of a request for planning: its largest ask, its CPU, its conditions and kinds of sharing. A mix
is a bounded set of shapes with weights that sum to 1. ``MixHistogram`` learns one: every pod adds one to its shape, and
everything counted before fades with a half-life given in pods, so time does not enter.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter

from scoring.conditions import ANY_DEVICE, Conditions
from scoring.request import DEFAULT_SHARING, ContainerAsk, PodRequest, SharingMode


@dataclass(frozen=True, slots=True)
class Shape:
    """What matters of a request for planning. ``count`` 0 is a pod that asks for no GPU."""

    count: int = 0
    memory_mib: int | None = None
    compute_milli: int | None = None
    cpu_milli: int = 0
    conditions: Conditions = ANY_DEVICE
    sharing: frozenset[SharingMode] = DEFAULT_SHARING


@dataclass(frozen=True, slots=True)
class Mix:
    """Shapes to expect with their probabilities (they sum to 1), most frequent first; empty when nothing is known."""

    shapes: tuple[tuple[Shape, float], ...] = ()

    def covering(self, share: float) -> Mix:
        """Return the most frequent shapes that make up ``share`` (0..1) of all pods, renormalised.

        FGD plans with the "typical pods" that make up 95 % (Weng et al., ATC 2023, artifact README).
        """
        taken: list[tuple[Shape, float]] = []
        total = 0.0
        for shape, weight in self.shapes:
            if total >= share:
                break
            taken.append((shape, weight))
            total += weight
        return Mix(tuple((shape, weight / total) for shape, weight in taken))


def shape_of(request: PodRequest) -> Shape:
    """Return the shape of a request: its largest ask stands for all its containers."""
    if not request.containers:
        return Shape(cpu_milli=request.cpu_milli)
    ask = max(request.containers, key=_size)
    return Shape(ask.count, ask.memory_mib, ask.compute_milli, request.cpu_milli, request.conditions, request.sharing)


def _size(ask: ContainerAsk) -> tuple[bool, int, int, int]:
    return ask.is_whole, ask.count, ask.compute_milli or 0, ask.memory_mib or 0


class MixHistogram:
    """A decayed count of shapes, bounded in size: the rarest shape makes room for a new one."""

    def __init__(self, half_life_pods: int = 10_000, limit: int = 512) -> None:
        self._growth = 2.0 ** (1.0 / half_life_pods)
        self._limit = limit
        self._increment = 1.0
        self._weights: dict[Shape, float] = {}

    def note(self, request: PodRequest) -> None:
        """Count one pod. Older pods fade by making the newer ones count more."""
        shape = shape_of(request)
        if shape not in self._weights and len(self._weights) >= self._limit:
            rarest, _ = min(self._weights.items(), key=itemgetter(1))  # By items: looking shapes up hashes each.
            del self._weights[rarest]
        self._weights[shape] = self._weights.get(shape, 0.0) + self._increment
        self._increment *= self._growth
        if self._increment > _RESCALE_AT:
            self._weights = {key: weight / self._increment for key, weight in self._weights.items()}
            self._increment = 1.0

    def expect(self, mix: Mix, pods: float) -> None:
        """Count a mix as so many pods seen now: what is seen later fades it like everything else."""
        for shape, weight in reversed(mix.shapes[: self._limit]):
            self._make_room_for(shape)
            self._weights[shape] = self._weights.get(shape, 0.0) + self._increment * weight * pods

    def _make_room_for(self, shape: Shape) -> None:
        if shape not in self._weights and len(self._weights) >= self._limit:
            del self._weights[min(self._weights, key=self._weights.__getitem__)]

    def mix(self) -> Mix:
        """Return what was learned so far, most frequent first; what has faded to nothing is left out."""
        least = sum(self._weights.values()) * _LEAST_PART
        kept = [(shape, weight) for shape, weight in self._weights.items() if weight >= least]
        total = sum(weight for _, weight in kept)
        ranked = sorted(kept, key=lambda item: (-item[1], repr(item[0])))
        return Mix(tuple((shape, weight / total) for shape, weight in ranked))


_RESCALE_AT = 1e12
_LEAST_PART = 1e-9
"""Part of all below which a shape is not worth planning for; nearer to zero, quotients of weights lose their digits."""
