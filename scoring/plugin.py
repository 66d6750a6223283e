"""Pods that ask NVIDIA's own device plugin: the node is judged and scored, the device is kubelet's to choose.

Because kubelet may hand out any device behind a resource, a node meets a pod's conditions only where all of them do. A
replica is free where it is offered on a healthy device and not given out; of those given out only the sum is known, so
they all count against the healthy devices. The score is the mean of the policy's scorers over those devices: what may
be expected of kubelet's choice. Scorers that plan for shares of ours have nothing to say here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scoring.candidates import Candidates, Values, over_devices
from scoring.eligibility import meets_conditions
from scoring.feasibility import Steps, Verdicts, judged, worst_of
from scoring.fleet import BoolArray, DeviceState, Fleet, FloatArray, IntArray
from scoring.needs import Need, remainder_milli, times_over
from scoring.outlook import Outlook
from scoring.placement import Placements
from scoring.registry import Policy
from scoring.request import WHOLE_MILLI, ContainerAsk, PluginAsk, PodRequest
from scoring.status import Code, Reason

SCORERS = frozenset({"load", "packing", "preference", "spread", "sufficiency"})
"""The scorers that make sense of a device without knowing which one is taken."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One resource of the plugin on every node.

    ``behind``, ``healthy``  shape (width, nodes): the devices behind it, and those of them that take new pods
    ``replicas``  shape (nodes,): offered in all
    ``serving``   offered on healthy devices
    ``free``      of those, not given out; negative where healthy devices offer less than is given out
    """

    behind: BoolArray
    healthy: BoolArray
    replicas: IntArray
    serving: IntArray
    free: IntArray


def place_on_plugin(request: PodRequest, fleet: Fleet, policy: Policy, outlook: Outlook) -> Placements:
    """Return verdict and score of every node for a pod that asks the plugin; no slots, as kubelet chooses.

    Linear in devices times resources asked.
    """
    offers = [offer_of(fleet, ask.resource) for ask in request.plugin]
    matching = meets_conditions(request, fleet)
    asked = list(zip(request.plugin, offers, strict=True))
    code, reason = worst_of([_shortfall(fleet, ask, offer, matching) for ask, offer in asked])
    if not (code == Code.FIT).any():
        return Placements(code, reason, np.zeros(len(fleet), np.float32), ())
    score = np.zeros(len(fleet), np.float32)
    for ask, offer in asked:
        score += np.float32(ask.count) * _value(_candidates(request, ask, offer, fleet, outlook), offer, policy)
    score /= np.float32(sum(ask.count for ask in request.plugin))
    return Placements(code, reason, np.where(code == Code.FIT, np.minimum(score, 1), np.float32(0)), ())


def offer_of(fleet: Fleet, resource: str) -> Offer:
    """Return what every node offers of a resource; one that no node has is offered nowhere."""
    number = fleet.resources.index(resource) if resource in fleet.resources else len(fleet.resources)
    behind = fleet.resource == number
    healthy = behind & (fleet.device_state >= DeviceState.SUSPECT)
    serving = _sum(fleet.replicas, healthy)
    return Offer(behind, healthy, _sum(fleet.replicas, behind), serving, serving - _sum(fleet.replicas_taken, behind))


def _shortfall(fleet: Fleet, ask: PluginAsk, offer: Offer, matching: BoolArray) -> Verdicts:
    steps: Steps = (
        (_any(fleet.kind >= 0), Code.UNRESOLVABLE, Reason.NO_DEVICES),
        (_any(offer.behind), Code.UNRESOLVABLE, Reason.NO_SHARING_MODE),
        (offer.replicas >= ask.count, Code.UNRESOLVABLE, Reason.TOO_FEW_DEVICES),
        (~_any(offer.behind & ~matching), Code.UNRESOLVABLE, Reason.NO_MATCHING_DEVICE),
        (offer.serving >= ask.count, Code.UNSCHEDULABLE, Reason.NO_HEALTHY_DEVICE),
        (offer.free >= ask.count, Code.UNSCHEDULABLE, Reason.NO_PLUGIN_REPLICA),
    )
    return judged(fleet, steps)


def _candidates(request: PodRequest, ask: PluginAsk, offer: Offer, fleet: Fleet, outlook: Outlook) -> Candidates:
    """Return the ask as the scorers know it: one replica of each of ``count`` devices, in thousandths of a device."""
    whole = np.full_like(fleet.replicas, WHOLE_MILLI)
    each = times_over(whole, 1, fleet.replicas)
    free = np.maximum(fleet.replicas - fleet.replicas_taken, 0)
    unbooked = remainder_milli(fleet, fleet.capacity_mib - fleet.booked_mib, fleet.capacity_milli - fleet.booked_milli)
    rest = np.where(offer.behind, times_over(free, WHOLE_MILLI, fleet.replicas), unbooked)
    left = np.where(offer.behind, np.maximum(rest - each, 0), unbooked)
    need = Need(np.zeros_like(fleet.capacity_mib), each, offer.behind)
    asked = ContainerAsk(ask.resource, count=ask.count, compute_milli=WHOLE_MILLI)
    return Candidates(request, asked, fleet, outlook, need, offer.healthy, rest, left)


def _value(view: Candidates, offer: Offer, policy: Policy) -> FloatArray:
    """Return the mean of the policy's scorers over the healthy devices, 0..1; 0 where none of them has a weight."""
    value: Values = np.zeros(view.fits.shape, np.float32)
    total = np.float32(0)
    for name, scorer, weight in policy.scorers():
        if name in SCORERS:
            value += np.float32(weight) * scorer(view)
            total += np.float32(weight)
    devices = np.maximum(offer.healthy.sum(axis=0, dtype=np.int32), 1)
    summed = over_devices(np.where(offer.healthy, value, np.float32(0)))
    mean: FloatArray = (summed / (devices * max(total, np.float32(1e-9)))).astype(np.float32)
    return mean


def _any(mask: BoolArray) -> BoolArray:
    return np.asarray(mask.any(axis=0))


def _sum(column: IntArray, where: BoolArray) -> IntArray:
    summed: IntArray = np.where(where, column, 0).sum(axis=0, dtype=np.int32)
    return summed
