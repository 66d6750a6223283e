"""How every node fares for a request, remembered while the fleet stays as it is.

The one place where filter, prioritize and explain get their answer from, so that they cannot disagree. What is
remembered is bounded; an entry is of use while policy, outlook and the fleet's generation are those it was made with.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from extender.nominees import Shares
from extender.settings import Settings
from scoring.errors import InvalidRequest
from scoring.feasibility import NO_REASON, reason_number
from scoring.fleet import ByteArray, Fleet, FloatArray
from scoring.outlook import Outlook
from scoring.pipeline import evaluate
from scoring.registry import Policy, build_policies
from scoring.request import PodRequest
from scoring.status import Code, Reason
from scoring.workload import MixHistogram

_POLICY_FIELD = "gpu-policy"
_NOTES_BETWEEN_OUTLOOKS = 64
_WORTH_REFRESHING = 0.3
"""Part of the rows beyond which judging all of them anew costs no more than picking out the changed ones."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Verdict and score of every row of a fleet, as ``pipeline.evaluate`` gives them."""

    fleet: Fleet
    policy: Policy
    code: ByteArray
    reason: ByteArray
    score: FloatArray


@dataclass(frozen=True, slots=True)
class _Remembered:
    """A judgement without its fleet, which would keep whole columns alive."""

    generation: int
    code: ByteArray
    reason: ByteArray
    score: FloatArray


class Evaluations:
    """Judges requests against fleets; knows the policies and what demand to expect."""

    def __init__(self, settings: Settings) -> None:
        self._policies = build_policies(settings.policies)
        self._default = settings.policy
        self._kept = settings.evaluations_kept
        self._remembered: OrderedDict[tuple[PodRequest, str], _Remembered] = OrderedDict()
        self._histogram = MixHistogram()
        self._notes = 0
        self._outlook_kinds = 0
        self.outlook = Outlook.empty()

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
        if not request.containers:
            return _everything_fits(fleet, policy)
        judgement = self._judge(request, fleet, policy)
        return self._without(judgement, request, kept) if kept else judgement

    def note(self, request: PodRequest) -> None:
        """Learn from a pod that was asked for what to expect."""
        self._histogram.note(request)
        self._notes += 1

    def refresh_outlook(self, fleet: Fleet) -> bool:
        """Work the outlook out anew where enough was learned or new kinds of device came; return whether it changed."""
        grown = len(fleet.kinds) != self._outlook_kinds
        if self._notes < _NOTES_BETWEEN_OUTLOOKS and not (grown and self._notes):
            return False
        self._notes, self._outlook_kinds = 0, len(fleet.kinds)
        self.outlook = Outlook.of(self._histogram.mix(), fleet.kinds)
        self._remembered.clear()
        return True

    def _judge(self, request: PodRequest, fleet: Fleet, policy: Policy) -> Judgement:
        key = (request, policy.name)
        known = self._remembered.get(key)
        if known is None or known.generation != fleet.generation:
            known = self._refreshed(known, request, fleet, policy)
            self._remembered[key] = known
        self._remembered.move_to_end(key)
        if len(self._remembered) > self._kept:
            self._remembered.popitem(last=False)
        return Judgement(fleet, policy, known.code, known.reason, known.score)

    def _refreshed(self, known: _Remembered | None, request: PodRequest, fleet: Fleet, policy: Policy) -> _Remembered:
        """Return what was remembered with the rows that changed since judged anew; most do not change in between."""
        stale = fleet.scored_since(known.generation) if known is not None else np.zeros(0, np.intp)
        if known is None or len(stale) > len(fleet) * _WORTH_REFRESHING:
            found = evaluate(request, fleet, policy, self.outlook)
            return _Remembered(fleet.generation, found.code, found.reason, found.score)
        code, reason = _grown(known.code, len(fleet)), _grown(known.reason, len(fleet))
        score = _grown(known.score, len(fleet))
        if len(stale):
            found = evaluate(request, fleet.take(stale), policy, self.outlook)
            code[stale], reason[stale], score[stale] = found.code, found.reason, found.score
        return _Remembered(fleet.generation, code, reason, score)

    def _without(self, judgement: Judgement, request: PodRequest, kept: Shares) -> Judgement:
        """Return the judgement with what is kept for others taken off; only nodes that lose something are looked at."""
        rows = np.array(sorted({row for row, _ in kept}), np.intp)
        changed = judgement.fleet.with_shares(kept).take(rows)
        found = evaluate(request, changed, judgement.policy, self.outlook)
        code, reason, score = judgement.code.copy(), judgement.reason.copy(), judgement.score.copy()
        lost = (code[rows] == Code.FIT) & (found.code != Code.FIT)
        code[rows[lost]], reason[rows[lost]] = Code.UNSCHEDULABLE, reason_number(Reason.RESERVED_FOR_NOMINATED)
        score[rows] = found.score
        return Judgement(judgement.fleet, judgement.policy, code, reason, score)


_T = TypeVar("_T", bound=np.generic)


def _grown(column: npt.NDArray[_T], rows: int) -> npt.NDArray[_T]:
    """Return a copy with room for rows that are new; those have changed, so they are written anyway."""
    return np.concatenate((column, np.zeros(rows - len(column), column.dtype)))


def _everything_fits(fleet: Fleet, policy: Policy) -> Judgement:
    """Return the judgement of a pod that asks for no device of ours: it is the scheduler's own business."""
    count = len(fleet)
    return Judgement(
        fleet,
        policy,
        np.full(count, Code.FIT, np.uint8),
        np.full(count, NO_REASON, np.uint8),
        np.zeros(count, np.float32),
    )
