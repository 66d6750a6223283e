"""In which order a pod's containers hold their devices, by Kubernetes' rules.

Init containers run one after another before everything else; a sidecar (an init container that restarts always) starts
in its turn and runs beside all that follows. So a pod goes through phases: one for each init container, with the
sidecars started before it, then the main phase with every sidecar and app container. What a device books for the pod is
the most that any phase takes of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scoring.request import ContainerAsk, ContainerKind


@dataclass(frozen=True, slots=True)
class Phase:
    """Positions of asks that hold devices at one time: those that must be placed now, and those placed already."""

    placed_now: tuple[int, ...]
    beside: tuple[int, ...] = ()
    is_main: bool = False


def phases(asks: Sequence[ContainerAsk]) -> tuple[Phase, ...]:
    """Return the phases in the order of placing: the main phase first (largest asks first), then each init container.

    The main phase goes first because init containers may then use what the pod holds anyhow.
    """
    main = [at for at, ask in enumerate(asks) if ask.kind is not ContainerKind.INIT]
    main.sort(key=lambda at: _size(asks[at]), reverse=True)
    sidecars_before: list[int] = []
    found = [Phase(tuple(main), is_main=True)] if main else []
    for at, ask in enumerate(asks):
        if ask.kind is ContainerKind.SIDECAR:
            sidecars_before.append(at)
        elif ask.kind is ContainerKind.INIT:
            found.append(Phase((at,), tuple(sidecars_before)))
    return tuple(found)


def _size(ask: ContainerAsk) -> tuple[bool, int, int, int]:
    return ask.is_whole, ask.count, ask.memory_mib or 0, ask.compute_milli or 0
