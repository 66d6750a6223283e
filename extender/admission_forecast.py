"""Whether any node that is known could ever hold a request, were all of it free and healthy.

Nodes may come, so the answer is a warning to the author and never a refusal.
"""

from __future__ import annotations

import numpy as np

from scoring.eligibility import eligible
from scoring.fleet import BoolArray, Fleet
from scoring.needs import need_of
from scoring.request import ContainerAsk, PodRequest


def never_fits(request: PodRequest, fleet: Fleet) -> tuple[str, ...]:
    """Return a sentence for every container that no known node could ever hold; none where no device is known."""
    if not bool((fleet.kind >= 0).any()):
        return ()
    sentences = ((ask.name, _shortfall(request, ask, fleet)) for ask in request.containers)
    return tuple(f"container {name} fits no node known today: {why}" for name, why in sentences if why)


def _shortfall(request: PodRequest, ask: ContainerAsk, fleet: Fleet) -> str:
    masks = eligible(request, fleet)
    sized = masks.sharing & need_of(request, ask, fleet).sized
    steps = (
        (masks.present, "a node has at most {most} GPUs, {count} are asked"),
        (masks.matching, "a node has at most {most} GPUs that meet the pod's conditions, {count} are asked"),
        (masks.sharing, "a node has at most {most} of them with the kind of sharing asked, {count} are asked"),
        (sized, "a node has at most {most} of them that are large enough, {count} are asked"),
    )
    for mask, sentence in steps:
        most = _most(mask)
        if most < ask.count:
            return sentence.format(most=most, count=ask.count)
    return ""


def _most(mask: BoolArray) -> int:
    """Return how many devices of the best node a mask has."""
    return int(np.count_nonzero(mask, axis=0).max(initial=0))
