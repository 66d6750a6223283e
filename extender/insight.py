"""What the extender remembers and says about its decisions, beside making them; nothing here is on their way.

``note`` and ``sample`` are called after an answer is made and only put things into bounded queues. ``follow_up`` works
them off once a second: a diagnosis in a thread, an event, a row in the history. Where there is too much to do, less is
explained: events first, then one sample of a pod that fits.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec
import structlog

from extender.audit import Finding, audit, read_books
from extender.catchup import list_bound_pods
from extender.clock import Clock
from extender.decisions import Decision, Decisions, Verb
from extender.errors import ExtenderError, KubeError
from extender.evaluations import Evaluations
from extender.explain_words import event_words, node_words
from extender.explaining import Explained, Explainer, Question, diagnosed
from extender.history import History, HistoryUnavailable, Kept, PodHistory
from extender.history_file import Attempt, Bounds, Explanation
from extender.history_peers import AskPeers, Peers, PeerState, kept_by, merged, no_peers
from extender.holdings import ObservedPod
from extender.kubeapi import Kube
from extender.objects import Pod
from extender.observing import observe_pod
from extender.pod_events import Due, PodEvents
from extender.reflection import ListWatch
from extender.settings import Settings
from extender.store import ClusterStore
from extender.usage import UsageTracker
from scoring.diagnosis import NodeDetail

_LOG = structlog.get_logger(__name__)
_ENCODER = msgspec.json.Encoder()
_EVENTS_A_ROUND = 3
_SAMPLE_EVERY_S = 2.0
_REST = 19.0
"""Explaining takes a twentieth of the time at most."""
_MOST_ATTEMPTS = 500


class CannotJudge(ExtenderError):
    """A pod or a node cannot be judged; ``status`` is the HTTP status that says so."""

    code = "CannotJudge"

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Told:
    """All that is known of a pod: now (None where it is gone), every attempt, earlier explanations, who keeps what."""

    now: Explained | None
    attempts: tuple[Attempt, ...]
    explanations: tuple[Explanation, ...]
    kept: tuple[Kept, ...]
    peers: tuple[PeerState, ...]


@dataclass(frozen=True, slots=True)
class World:
    """What insight looks at; ``source`` lists pods for the audit, None where nobody lists."""

    store: ClusterStore
    evaluations: Evaluations
    decisions: Decisions
    kube: Kube
    settings: Settings
    clock: Clock
    may_act: Callable[[], bool]
    source: ListWatch | None = None


class Insight:
    """History, explanations, events, usage and audit of one replica."""

    def __init__(self, world: World) -> None:
        settings = world.settings
        self._world = world
        kept = settings.history
        bounds = Bounds(kept.days, kept.megabytes)
        self.history = History(kept.path, bounds, settings.deployment.host_name, world.clock.wall)
        self.explainer = Explainer(world.store, world.evaluations, settings, world.decisions)
        self.usage = UsageTracker(world.store, world.clock)
        self.events = PodEvents()
        self.event_outcomes: Counter[str] = Counter()
        self._ask_peers: AskPeers = Peers(kept.peers, kept.peers_ca) if kept.peers else no_peers
        self._sample: Question | None = None
        self._sampled_at = float("-inf")
        self._rests_until = float("-inf")
        self._auditing = asyncio.Lock()

    def note(self, decision: Decision) -> None:
        """Remember a decision; scores alone are left out, the bind that follows says where the pod went."""
        if decision.verb is Verb.PRIORITIZE:
            return
        self.events.note(decision, self._world.clock.now())
        self.history.note(_attempt(decision))

    def sample(self, pod: Pod) -> None:
        """Have a pod that fits somewhere explained as of now: winner, runners-up and the parts of their scores."""
        now = self._world.clock.now()
        if self._sample is None and now - self._sampled_at >= _SAMPLE_EVERY_S:
            self._sampled_at = now
            self._sample = self.explainer.question(pod)

    async def follow_up(self) -> None:
        """Work off what was noted: events on pods, and explanations for the history.

        Then rest for many times as long as it took: a diagnosis of 5,000 nodes takes a sixth of a second of the
        interpreter that decisions need too.
        """
        began = self._world.clock.now()
        if began < self._rests_until:
            return
        sample, self._sample = self._sample, None
        if sample is not None:
            await self._explain(sample)
        for due in self.events.take_due(_EVENTS_A_ROUND):
            await self._tell(due)
        ended = self._world.clock.now()
        self._rests_until = ended + (ended - began) * _REST

    async def told(self, namespace: str, name: str, headers: Mapping[str, str], limit: int = 200) -> Told:
        """Return all that is known of a pod. Raises KubeError where the API server cannot say whether it is there."""
        pod = await self._world.kube.get_pod(namespace, name)
        now = None if pod is None else await self._explained(pod)
        own, (others, states) = await asyncio.gather(
            self._own(namespace, name), self._ask_peers(namespace, name, headers)
        )
        histories = ([own] if isinstance(own, PodHistory) else []) + others
        if not isinstance(own, PodHistory):
            states = [PeerState("this replica", own), *states]
        attempts, explanations = merged(histories, min(limit, _MOST_ATTEMPTS))
        return Told(now, attempts, explanations, kept_by(histories), tuple(states))

    async def why_not(self, node: str, namespace: str, name: str) -> tuple[NodeDetail, tuple[str, ...]]:
        """Return how one node fares for a pod, and that in words; raise CannotJudge, or KubeError from the read."""
        pod = await self._world.kube.get_pod(namespace, name)
        if pod is None:
            raise CannotJudge(404, f"pod {namespace}/{name} does not exist")
        if self._world.store.node(node) is None:
            raise CannotJudge(404, f"node {node[:253]!r} is not known to Tangram")
        question = self.explainer.question(pod)
        detail = self.explainer.why_not(question, node)
        if detail is None:
            why = "; ".join(question.problems) or "it asks Tangram for no GPU"
            raise CannotJudge(422, f"pod {namespace}/{name} cannot be judged: {why}")
        return detail, node_words(detail, self.explainer.words_for(question, (detail,)))

    async def audited(self) -> tuple[Finding, ...] | None:
        """Compare books, annotations and reports; None where this replica cannot list pods. One at a time.

        Raises KubeError where the API server cannot be read.
        """
        source, prefix = self._world.source, self._world.settings.key_prefix
        if source is None:
            return None
        async with self._auditing:
            store, seen = self._world.store, list[ObservedPod]()
            before = {holding.pod.uid: holding for holding in store.ledger.all()}
            await list_bound_pods(source, lambda pod: seen.append(observe_pod(pod, prefix)))
            after = await read_books(store, lambda: self._world.clock.sleep(0))
            return await asyncio.to_thread(audit, before, seen, after)

    async def _own(self, namespace: str, name: str) -> PodHistory | str:
        try:
            return await self.history.of_pod(namespace, name, _MOST_ATTEMPTS)
        except HistoryUnavailable as error:
            return str(error)

    async def _explained(self, pod: Pod) -> Explained:
        question = await asyncio.to_thread(diagnosed, self.explainer.question(pod))
        return self.explainer.answer(question)

    async def _explain(self, question: Question) -> Explained:
        """Explain, and keep the explanation."""
        answer = self.explainer.answer(await asyncio.to_thread(diagnosed, question))
        metadata = question.pod.metadata
        body = msgspec.Raw(
            _ENCODER.encode({"words": answer.words, "state": answer.state, "diagnosis": answer.diagnosis})
        )
        self.history.note(Explanation(metadata.namespace, metadata.name, metadata.uid, self._world.clock.wall(), body))
        return answer

    async def _tell(self, due: Due) -> None:
        try:
            note = due.placed_note() if due.node else None
            if note is None:
                pod = await self._world.kube.get_pod(due.namespace, due.name)
                if pod is None or pod.metadata.uid != due.uid or pod.spec.node_name:
                    return
                answer = await self._explain(self.explainer.question(pod))
                if answer.diagnosis is None or not answer.diagnosis.counts:
                    return
                note = due.waits_note(event_words(answer.diagnosis, answer.waits))
            if not self._world.may_act():
                self.event_outcomes["not-active"] += 1
                return
            await self._world.kube.create_event(note)
        except KubeError as error:
            self.event_outcomes[error.code] += 1
            _LOG.warning("event_failed", pod=f"{due.namespace}/{due.name}", error=str(error))
        else:
            self.event_outcomes["written"] += 1


def _attempt(decision: Decision) -> Attempt:
    return Attempt(
        decision.namespace,
        decision.name,
        decision.pod_uid,
        str(decision.verb),
        decision.at,
        decision.at,
        decision.outcome,
        nodes_in=decision.nodes_in,
        nodes_out=decision.nodes_out,
        policy=decision.policy,
        node=decision.node,
        message=decision.message,
        reasons=decision.reasons,
        devices=decision.devices,
    )
