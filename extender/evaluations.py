"""How every node fares for a request: what lasts is remembered, what passes is added.

The one place where filter, prioritize and explain get their answer from, so that they cannot disagree. For a request of
one container the lasting part (``scoring.standing``) is kept and only rows that changed are worked out anew; others are
remembered while the fleet stays as it is. What is remembered is bounded, and forgotten with the outlook it was made by.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from extender.bounded import keep
from extender.holdings import ObservedPod
from extender.mix_file import read_mix
from extender.nominees import Shares
from extender.settings import Settings
from scoring.catalog import DeviceKind
from scoring.errors import InvalidRequest
from scoring.feasibility import reason_number
from scoring.fleet import ByteArray, Fleet, FloatArray
from scoring.native import Native
from scoring.outlook import Outlook
from scoring.pipeline import evaluate
from scoring.placement import Placements
from scoring.policies.load import WORTH_REFRESHING, LoadValues
from scoring.registry import Policy, build_policies
from scoring.request import PodRequest
from scoring.standing import Standing, can_stand, scores, stand, stand_again
from scoring.status import Code, Reason
from scoring.workload import Mix, MixHistogram

_POLICY_FIELD = "gpu-policy"
_FIRST_OUTLOOK = 16
_NOTES_BETWEEN_OUTLOOKS = 512
"""Pods that a new outlook is worked out after: first so few, then half as many as are known, at most so many."""

_NOTES_BETWEEN_PROSPECTS = 25
_NOTED_KEPT = 10_000
MIX_FILE_PODS = 2_000
"""How many pods a mix from a file counts as: live pods outweigh it after some thousands."""

_JUDGED_KEPT = 16
"""Judgements of several containers hold on to their fleet, so few are kept."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Verdict and score of every row of a fleet, as ``pipeline.evaluate`` gives them."""

    fleet: Fleet
    policy: Policy
    code: ByteArray
    reason: ByteArray
    score: FloatArray


_Key = tuple[PodRequest, str]


class Evaluations:
    """Judges requests against fleets; knows the policies and what demand to expect."""

    def __init__(self, settings: Settings) -> None:
        self._policies = build_policies(settings.policies, Native.load() if settings.helper else None)
        self._default = settings.policy
        self._kept = settings.evaluations_kept
        self._standings: OrderedDict[_Key, Standing] = OrderedDict()
        self._judged: OrderedDict[_Key, Judgement] = OrderedDict()
        self._noted: OrderedDict[str, None] = OrderedDict()
        self._load: LoadValues | None = None
        self._histogram = MixHistogram()
        self._notes = self._planned = self._known = 0
        self._until_prospect = 0
        self._outlook_kinds: tuple[DeviceKind, ...] = ()
        self.outlook = Outlook.empty()
        if settings.mix_file:
            self._histogram.expect(read_mix(Path(settings.mix_file)), MIX_FILE_PODS)
            self._notes = self._known = MIX_FILE_PODS

    @property
    def mix(self) -> Mix:
        """Return the mix of request shapes that was learned so far."""
        return self._histogram.mix()

    @property
    def policies(self) -> Mapping[str, Policy]:
        """Return the policies by name."""
        return self._policies

    def policy_for(self, request: PodRequest) -> Policy:
        """Return the policy that a request names, or the default; raise InvalidRequest for an unknown name."""
        name = request.policy or self._default
        if name not in self._policies:
            raise InvalidRequest(_POLICY_FIELD, name, f"one of {', '.join(sorted(self._policies))}")
        return self._policies[name]

    def judge(self, request: PodRequest, fleet: Fleet, kept: Shares | None = None) -> Judgement:
        """Return how every node fares. ``kept`` is what nominated pods keep from this one."""
        policy = self.policy_for(request)
        key = request, policy.name
        if can_stand(request):
            judgement = self._from_standing(key, fleet, policy)
        else:
            judgement = self._while_unchanged(key, fleet, policy)
        return self._without(judgement, request, kept) if kept else judgement

    def beside(self, judgement: Judgement, request: PodRequest, others: Shares) -> Judgement:
        """Return the judgement with scores as if others had these shares; only nodes that lose something are looked at.

        No node is refused for it, but one where the pod would no longer fit comes last.
        """
        rows, found = self._evaluated_beside(judgement, request, others)
        score = judgement.score.copy()
        score[rows] = np.where(found.code == Code.FIT, found.score, np.float32(0))
        return Judgement(judgement.fleet, judgement.policy, judgement.code, judgement.reason, score)

    def note(self, uid: str, request: PodRequest, fleet: Fleet) -> None:
        """Learn from a pod what to expect, once however often it is tried; now and then look at what is scarce."""
        self._learn(uid, request)
        self._until_prospect -= 1
        if self._until_prospect < 0:
            self._until_prospect = _NOTES_BETWEEN_PROSPECTS
            self.outlook = self.outlook.before(fleet)
            self._judged.clear()

    def remember(self, pod: ObservedPod) -> None:
        """Learn from a pod that runs, so that a new process knows the mix that was there before it.

        Only while every pod learned from is known: later a pod seen again could not be told from a new one.
        """
        if pod.request is not None and pod.node and not pod.is_over and len(self._noted) < _NOTED_KEPT:
            self._learn(pod.pod.uid, pod.request)

    def _learn(self, uid: str, request: PodRequest) -> None:
        if uid in self._noted:
            return
        keep(self._noted, uid, None, _NOTED_KEPT)
        self._histogram.note(request)
        self._notes += 1
        self._known += 1

    def due(self, fleet: Fleet) -> Mix | None:
        """Return the mix to work an outlook out from, where enough was learned or new kinds of device came."""
        if not self._known or not fleet.kinds:
            return None
        enough = max(_FIRST_OUTLOOK, min(self._known // 2, _NOTES_BETWEEN_OUTLOOKS))
        grown = fleet.kinds != self._outlook_kinds
        if not grown and self._notes < enough:
            return None
        self._planned = self._notes
        return self._histogram.mix()

    def adopt(self, outlook: Outlook, kinds: tuple[DeviceKind, ...], fleet: Fleet) -> None:
        """Plan by an outlook from now on; what was remembered by another is forgotten.

        ``kinds`` are those that it was worked out for, and since the mix for it was asked for others may have come, and
        more may have been learned: both are planned for next time.
        """
        self._notes, self._outlook_kinds = self._notes - self._planned, kinds
        self._planned = 0
        self.outlook = outlook.before(fleet)
        self._standings.clear()
        self._judged.clear()

    def _from_standing(self, key: _Key, fleet: Fleet, policy: Policy) -> Judgement:
        request, known = key[0], self._standings.get(key)
        if known is None:
            known = stand(request, fleet, policy, self.outlook)
        elif known.generation != fleet.generation:
            rows = fleet.changed_since(known.generation)
            if len(rows) > len(fleet) * WORTH_REFRESHING:
                known = stand(request, fleet, policy, self.outlook)
            else:
                known = stand_again(known, request, fleet, policy, self.outlook, rows)
        keep(self._standings, key, known, self._kept)
        if not (known.code == Code.FIT).any():
            return Judgement(fleet, policy, known.code, known.reason, np.zeros(len(fleet), np.float32))
        self._load = self._load or LoadValues.of(fleet)
        loads = self._load.follow(fleet, policy.helper.write_load if policy.helper is not None else None)
        score = scores(known, request, fleet, policy, self.outlook, loads)
        return Judgement(fleet, policy, known.code, known.reason, score)

    def _while_unchanged(self, key: _Key, fleet: Fleet, policy: Policy) -> Judgement:
        known = self._judged.get(key)
        if known is None or known.fleet.generation != fleet.generation:
            found = evaluate(key[0], fleet, policy, self.outlook)
            known = Judgement(fleet, policy, found.code, found.reason, found.score)
        keep(self._judged, key, known, _JUDGED_KEPT)
        return known

    def _without(self, judgement: Judgement, request: PodRequest, kept: Shares) -> Judgement:
        """Return the judgement with what is kept for others taken off; only nodes that lose something are looked at."""
        rows, found = self._evaluated_beside(judgement, request, kept)
        code, reason, score = judgement.code.copy(), judgement.reason.copy(), judgement.score.copy()
        lost = (code[rows] == Code.FIT) & (found.code != Code.FIT)
        code[rows[lost]], reason[rows[lost]] = Code.UNSCHEDULABLE, reason_number(Reason.RESERVED_FOR_NOMINATED)
        score[rows] = found.score
        return Judgement(judgement.fleet, judgement.policy, code, reason, score)

    def _evaluated_beside(
        self, judgement: Judgement, request: PodRequest, shares: Shares
    ) -> tuple[npt.NDArray[np.intp], Placements]:
        """Return the rows that shares of others lie on, and how the pod would fare there beside them."""
        rows = np.array(sorted({row for row, _ in shares}), np.intp)
        return rows, evaluate(request, judgement.fleet.part(rows, shares), judgement.policy, self.outlook)
