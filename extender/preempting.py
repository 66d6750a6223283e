"""Which of the scheduler's preemption candidates are worth an eviction (extender-protocol.md sections 4 and 12).

In-tree filters know totals only, so an eviction that satisfies them may leave every single device too full: two pods
lost for nothing. Nodes where our own filter would still refuse are dropped. Schedulers after 1.37 send empty lists for
nodes where in-tree filters need no victim; for those the cheapest victims are chosen here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from extender.evaluations import Evaluations
from extender.holdings import Holding, PodIdentity
from extender.store import ClusterStore
from extender.wire import Victim, Victims
from scoring.feasibility import reason_number
from scoring.fleet import Fleet
from scoring.preemption import Candidate, Preemptor, choose_victims, keep_node
from scoring.request import PodRequest
from scoring.status import Code, Reason


def worthwhile_victims(
    pod: PodIdentity,
    request: PodRequest,
    asked: Mapping[str, Victims],
    store: ClusterStore,
    evaluations: Evaluations,
) -> dict[str, Victims]:
    """Return the nodes to keep, and whom to evict there; only nodes that were asked about are named.

    A pod that asks for no device of ours keeps every node that has victims: it is the scheduler's own business, unless
    it asks NVIDIA's device plugin on a node where no eviction helps. Raises InvalidRequest for a policy that does not
    exist.
    """
    if not request.containers:
        hopeless = _hopeless(request, store, evaluations)
        return {name: victims for name, victims in asked.items() if victims.pods and name not in hopeless}
    preemptor = Preemptor(request, pod.priority, evaluations.policy_for(request), evaluations.outlook)
    fleet = store.snapshot_for(pod)
    kept = {}
    for name, victims in asked.items():
        answer = _on_node(preemptor, fleet, name, victims, tuple(store.ledger.on_node(name)))
        if answer is not None:
            kept[name] = answer
    return kept


def _hopeless(request: PodRequest, store: ClusterStore, evaluations: Evaluations) -> frozenset[str]:
    """Return the nodes that a pod's conditions or their own state forbid, whatever is evicted."""
    judgement = evaluations.judge(request, store.snapshot())
    full = judgement.reason == reason_number(Reason.NO_PLUGIN_REPLICA)
    rows = np.flatnonzero((judgement.code != Code.FIT) & ~full)
    return frozenset(judgement.fleet.names[row] for row in rows)


def _on_node(
    preemptor: Preemptor, fleet: Fleet, name: str, victims: Victims, holdings: Iterable[Holding]
) -> Victims | None:
    row = fleet.rows.get(name)
    if row is None:
        return None
    slots = {uuid: slot for slot, uuid in enumerate(fleet.uuids[row])}
    candidates = [_candidate(holding, slots) for holding in holdings]
    uids = set(victims.uids())
    if uids:
        evicted = [entry for entry in candidates if entry.uid in uids]
        return victims if keep_node(preemptor, fleet, row, evicted) else None
    chosen = choose_victims(preemptor, fleet, row, candidates)
    if not chosen:
        return None
    return Victims(tuple(Victim(entry.uid) for entry in chosen))


def _candidate(holding: Holding, slots: Mapping[str, int]) -> Candidate:
    booked = tuple(
        (slots[booking.uuid], booking.memory_mib, booking.compute_milli)
        for booking in holding.booked
        if booking.uuid in slots
    )
    return Candidate(holding.pod.uid, holding.pod.priority, booked)
