"""Writes each answer to kube-scheduler down: one Decision, one line of JSON, one word to whoever wakes pods."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import structlog

from extender.attempt import Bound
from extender.decisions import Decision, Verb
from extender.evaluations import Judgement
from extender.nodenames import SentNodes
from extender.objects import Pod
from extender.services import Services
from extender.wire import BindArgs, Victims
from scoring.feasibility import NO_REASON, REASONS
from scoring.fleet import ByteArray

_LOG = structlog.get_logger("decisions")


class Recorder:
    """Remembers and logs decisions."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def filtered(
        self, pod: Pod, judgement: Judgement, sent: int, passed: int, reasons: Mapping[str, int], started: float
    ) -> None:
        """Note how many nodes were sent and passed, and why the others did not."""
        if passed < sent:
            self._services.waker.note_refusal()
        if passed:
            self._services.insight.sample(pod)
        for reason, nodes in reasons.items():
            self._services.metrics.rejections.labels(reason).inc(nodes)
        self._note(
            Verb.FILTER,
            pod,
            started,
            outcome="fits" if passed else "refused",
            generation=judgement.fleet.generation,
            nodes_in=sent,
            nodes_out=passed,
            policy=judgement.policy.name,
            reasons=reasons,
        )

    def prioritized(
        self, pod: Pod, judgement: Judgement, sent: SentNodes, scores: npt.NDArray[np.int32], started: float
    ) -> None:
        """Note the node that came first."""
        best = int(scores.argmax()) if len(scores) else None
        row = int(sent.rows[best]) if best is not None else -1
        self._note(
            Verb.PRIORITIZE,
            pod,
            started,
            outcome="scored",
            generation=judgement.fleet.generation,
            nodes_in=len(scores),
            nodes_out=len(scores),
            policy=judgement.policy.name,
            node=judgement.fleet.names[row] if row >= 0 else "",
        )

    def preempted(self, pod: Pod, asked: int, kept: Mapping[str, Victims], started: float) -> None:
        """Note on how many nodes an eviction would help."""
        self._note(
            Verb.PREEMPT,
            pod,
            started,
            outcome="helps" if kept else "in vain",
            nodes_in=asked,
            nodes_out=len(kept),
        )

    def bound(self, args: BindArgs, bound: Bound, started: float) -> None:
        """Note where a pod went, and with which devices."""
        shares = bound.allocation.shares() if bound.allocation is not None else ()
        outcome = "repeated" if bound.is_repeat else "bound"
        self._services.metrics.count_bind(outcome)
        self._note(
            Verb.BIND,
            bound.pod,
            started,
            outcome=outcome,
            node=args.node,
            policy=bound.allocation.policy if bound.allocation is not None else "",
            devices=tuple(share.uuid for share in shares),
            nodes_in=1,
            nodes_out=1,
        )

    def not_bound(self, args: BindArgs, error: Exception, started: float) -> None:
        """Note why a pod was not bound."""
        outcome = str(getattr(error, "code", type(error).__name__))
        self._services.metrics.count_bind(outcome)
        self._finish(
            Decision(
                verb=Verb.BIND,
                at=self._services.clock.wall(),
                pod_uid=args.pod_uid,
                namespace=args.pod_namespace,
                name=args.pod_name,
                outcome=outcome,
                generation=self._services.store.generation,
                duration_ms=self._ms_since(started),
                nodes_in=1,
                node=args.node,
                message=str(error),
            )
        )

    def _note(self, verb: Verb, pod: Pod, started: float, *, outcome: str, **rest: object) -> None:
        details = {"generation": self._services.store.generation, **rest}
        self._finish(
            Decision(
                verb=verb,
                at=self._services.clock.wall(),
                pod_uid=pod.metadata.uid,
                namespace=pod.metadata.namespace,
                name=pod.metadata.name,
                outcome=outcome,
                duration_ms=self._ms_since(started),
                **details,  # type: ignore[arg-type]
            )
        )

    def _finish(self, decision: Decision) -> None:
        self._services.decisions.note(decision)
        self._services.insight.note(decision)
        if decision.policy:
            self._services.metrics.decisions.labels(decision.verb, decision.policy, decision.outcome).inc()
        _LOG.info(
            decision.verb,
            pod_uid=decision.pod_uid,
            pod=f"{decision.namespace}/{decision.name}",
            outcome=decision.outcome,
            node=decision.node,
            nodes_in=decision.nodes_in,
            nodes_out=decision.nodes_out,
            generation=decision.generation,
            ms=round(decision.duration_ms, 3),
        )

    def _ms_since(self, started: float) -> float:
        return (self._services.clock.now() - started) * 1000.0


def refusals(reason: ByteArray) -> dict[str, int]:
    """Return how many nodes were refused for each reason, by its stable code."""
    counts = np.bincount(reason, minlength=NO_REASON + 1)[: len(REASONS)]
    return {str(REASONS[number].value): int(counts[number]) for number in np.flatnonzero(counts)}
