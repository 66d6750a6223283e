"""Why a pod that asks NVIDIA's device plugin fits where it fits, and why not elsewhere, in numbers.

The counterpart of ``diagnosis`` for pods whose devices kubelet chooses: a node is told by what the plugin offers there,
not device by device. Bounded in the same way: counts for every node, details for a few.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scoring.diagnosis import ReasonCount, outcome_counts, worth_detail
from scoring.fleet import Fleet
from scoring.outlook import Outlook
from scoring.pipeline import verdict
from scoring.plugin import offer_of, place_on_plugin
from scoring.registry import Policy
from scoring.request import PluginAsk, PodRequest
from scoring.status import Reason


@dataclass(frozen=True, slots=True)
class OfferDetail:
    """One resource on one node, in replicas.

    ``replicas``  offered in all
    ``serving``   of them on healthy devices
    ``taken``     given out, or promised to pods that were bound
    ``free``      left for new pods, 0 or more
    ``unmet``     annotations, without prefix, of conditions that some device behind the resource does not meet
    """

    resource: str
    asked: int
    devices: int
    healthy: int
    replicas: int
    serving: int
    taken: int
    free: int
    unmet: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PluginNode:
    """One node: outcome, score where the pod fits, and what the plugin offers."""

    node: str
    outcome: str
    reason: Reason | None
    sentence: str
    score: float
    offers: tuple[OfferDetail, ...]


@dataclass(frozen=True, slots=True)
class PluginDiagnosis:
    """Why the pod fits or not; ``nodes`` are the best that fit, best first, then those that came closest."""

    asked: tuple[PluginAsk, ...]
    conditions: tuple[tuple[str, str], ...]
    policy: str
    counts: tuple[ReasonCount, ...]
    nodes: tuple[PluginNode, ...]


def diagnose_plugin(request: PodRequest, fleet: Fleet, policy: Policy, outlook: Outlook) -> PluginDiagnosis:
    """Return the diagnosis of a request that asks the plugin. One evaluation of the fleet, one more a node told."""
    named = fleet.take(np.array([row for row, name in enumerate(fleet.names) if name], np.intp))
    found = place_on_plugin(request, named, policy, outlook)
    return PluginDiagnosis(
        asked=request.plugin,
        conditions=request.conditions.describe(),
        policy=policy.name,
        counts=outcome_counts(found),
        nodes=tuple(_node(request, named, row, policy, outlook) for row in worth_detail(named, found)),
    )


def _node(request: PodRequest, fleet: Fleet, row: int, policy: Policy, outlook: Outlook) -> PluginNode:
    node = fleet.take(np.array([row]))
    found = place_on_plugin(request, node, policy, outlook)
    judged = verdict(found, 0)
    return PluginNode(
        node=fleet.names[row],
        outcome=judged.code.name.lower(),
        reason=judged.reason,
        sentence=judged.reason.sentence if judged.reason is not None else "",
        score=float(found.score[0]),
        offers=tuple(_offer(request, node, ask) for ask in request.plugin),
    )


def _offer(request: PodRequest, node: Fleet, ask: PluginAsk) -> OfferDetail:
    offer = offer_of(node, ask.resource)
    kinds = dict.fromkeys(node.kinds[kind] for kind in node.kind[offer.behind].tolist())
    serving, free = int(offer.serving[0]), int(offer.free[0])
    return OfferDetail(
        resource=ask.resource,
        asked=ask.count,
        devices=int(offer.behind.sum()),
        healthy=int(offer.healthy.sum()),
        replicas=int(offer.replicas[0]),
        serving=serving,
        taken=serving - free,
        free=max(free, 0),
        unmet=tuple(dict.fromkeys(key for kind in kinds for key in request.conditions.failing(kind))),
    )
