"""Pods that ask for no GPU: every node is the stock scheduler's to judge, and ours to score.

Where such a pod goes decides which GPUs keep the CPU that their pods will need, so foresight and scarcity score it,
whatever the policy. Among nodes where it costs the same the fixed order of nodes decides, which fills them one after
the other.
"""

from __future__ import annotations

import numpy as np

from scoring.candidates import Candidates
from scoring.feasibility import NO_REASON
from scoring.fleet import Fleet, NodeState
from scoring.needs import Need, remainder_milli
from scoring.outlook import Outlook
from scoring.placement import Placements
from scoring.policies.foresight import foresight
from scoring.policies.scarcity import scarcity
from scoring.request import ContainerAsk, PodRequest
from scoring.status import Code

_NOTHING = ContainerAsk("", compute_milli=1)


def place_host_only(request: PodRequest, fleet: Fleet, outlook: Outlook) -> Placements:
    """Return FIT for every node, scored by what the pod's CPU would cost the GPU pods to come."""
    rest = remainder_milli(fleet, fleet.capacity_mib - fleet.booked_mib, fleet.capacity_milli - fleet.booked_milli)
    nothing = np.zeros_like(fleet.capacity_mib)
    anywhere = np.ones(fleet.kind.shape, np.bool_)
    view = Candidates(request, _NOTHING, fleet, outlook, Need(nothing, nothing, anywhere), anywhere, rest, rest)
    value = np.broadcast_to((foresight(view) + scarcity(view)) / np.float32(2), fleet.kind.shape)
    score = value[0].copy()
    count = len(fleet)
    return Placements(
        np.where(fleet.node_state == NodeState.EMPTY, Code.UNSCHEDULABLE, Code.FIT).astype(np.uint8),
        np.full(count, NO_REASON, np.uint8),
        score,
        (),
    )
