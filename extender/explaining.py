"""Why a pod is where it is, or nowhere: its spec as understood, a diagnosis in numbers, and whose end would help.

Three steps, so that the costly one needs no state and may run in a thread::

    Explainer.question(pod)      on the event loop: request, snapshot, policy
    diagnosed(question)          anywhere: pure
    Explainer.answer(question)   on the event loop: who holds what, and the words
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations

from extender.decisions import Decisions, Verb
from extender.evaluations import Evaluations
from extender.explain_hints import PodSide, hints
from extender.explain_words import WordsOf, in_words
from extender.holdings import Holding, PodIdentity
from extender.objects import Pod
from extender.observing import identity
from extender.podspec import parse_problems, pod_request
from extender.settings import Settings
from extender.store import ClusterStore
from scoring.diagnosis import Diagnosis, Hindrance, NodeDetail, ReasonCount, diagnose, explain_node
from scoring.errors import InvalidRequest
from scoring.fleet import Fleet
from scoring.outlook import Outlook
from scoring.plugin_diagnosis import PluginDiagnosis, diagnose_plugin
from scoring.registry import Policy
from scoring.request import PodRequest

_MOST_WAITS = 3
_MOST_HOLDERS = 12
_ENDING_TOGETHER = 3


class State(StrEnum):
    """How a pod stands with Tangram."""

    PLACED = "placed"
    WAITING = "waiting"
    INVALID = "invalid"
    NOT_OURS = "not-ours"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Wait:
    """Pods whose end would make room on one device, and what they would free."""

    node: str
    uuid: str
    pods: tuple[str, ...]
    frees_mib: int
    frees_milli: int


@dataclass(frozen=True, slots=True)
class Question:
    """One pod, and the world to judge it in; ``problems`` where what it asks cannot be understood.

    ``kept_for`` are the pods whose promised room counts as taken in ``fleet``.
    """

    pod: Pod
    fleet: Fleet
    kept_for: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    request: PodRequest | None = None
    policy: Policy | None = None
    outlook: Outlook | None = None
    diagnosis: Diagnosis | None = None
    plugin: PluginDiagnosis | None = None


@dataclass(frozen=True, slots=True)
class Explained:
    """The answer: ``words`` say it all to a person, the rest to a program. ``uid`` tells pods of one name apart."""

    pod: str
    uid: str
    state: State
    node: str
    words: tuple[str, ...]
    hints: tuple[str, ...]
    problems: tuple[str, ...]
    holding: Holding | None
    waits: tuple[Wait, ...]
    diagnosis: Diagnosis | None
    plugin: PluginDiagnosis | None = None

    def counts(self) -> tuple[ReasonCount, ...] | None:
        """Return how many nodes share each outcome; None where nothing was to be diagnosed."""
        found = self.diagnosis or self.plugin
        return None if found is None else found.counts


class Explainer:
    """Explains pods against the present state."""

    def __init__(self, store: ClusterStore, evaluations: Evaluations, settings: Settings, decisions: Decisions) -> None:
        self._store = store
        self._evaluations = evaluations
        self._settings = settings
        self._decisions = decisions

    def question(self, pod: Pod) -> Question:
        """Return what has to be asked about a pod. Never raises for what the pod says."""
        who = identity(pod)
        fleet, kept_for = self._store.snapshot_for(who), self._kept_for(who)
        problems = tuple(str(problem) for problem in parse_problems(pod, self._settings.key_prefix))
        if problems:
            return Question(pod, fleet, kept_for, problems)
        try:
            request = pod_request(pod, self._settings.key_prefix)
            policy = self._evaluations.policy_for(request)
        except InvalidRequest as problem:
            return Question(pod, fleet, kept_for, (str(problem),))
        return Question(pod, fleet, kept_for, (), request, policy, self._evaluations.outlook)

    def answer(self, question: Question) -> Explained:
        """Return the explanation of a question that was diagnosed."""
        pod, metadata = question.pod, question.pod.metadata
        holding = self._store.ledger.get(metadata.uid)
        state = _state(question, holding)
        waits = self._waits(question) if state is State.WAITING else ()
        told = hints(self._pod_side(question))
        detailed = question.diagnosis.nodes if question.diagnosis is not None else ()
        explained = Explained(
            pod=f"{metadata.namespace}/{metadata.name}",
            uid=metadata.uid,
            state=state,
            node=pod.spec.node_name,
            words=(),
            hints=told,
            problems=question.problems,
            holding=holding,
            waits=waits,
            diagnosis=question.diagnosis,
            plugin=question.plugin,
        )
        return replace(explained, words=in_words(explained, self.words_for(question, detailed)))

    def why_not(self, question: Question, node: str) -> NodeDetail | None:
        """Return how one node fares for a pod, device by device; None for a node or a pod that cannot be judged."""
        row = question.fleet.rows.get(node)
        if row is None or question.request is None or not question.request.containers:
            return None
        assert question.policy is not None
        assert question.outlook is not None
        return explain_node(question.request, question.fleet, row, question.policy, question.outlook)

    def _trouble(self, node: str) -> Mapping[str, str]:
        record = self._store.node(node)
        return {} if record is None else {uuid: facts.problem for uuid, facts in record.devices.items()}

    def _kept_for(self, pod: PodIdentity) -> tuple[str, ...]:
        return tuple(f"{each.namespace}/{each.name}" for each in self._store.nominees.ahead_of(pod))

    def words_for(self, question: Question, nodes: Iterable[NodeDetail]) -> WordsOf:
        """Return what the words about these nodes need."""
        names = [node.node for node in nodes]
        return WordsOf(
            trouble={name: self._trouble(name) for name in names},
            software={name: self._software(name) for name in names},
            problems={name: self._store.ledger.problems(name) for name in names},
            kept_for=question.kept_for,
        )

    def _software(self, node: str) -> Mapping[str, str]:
        record = self._store.node(node)
        if record is None or record.report is None:
            return {}
        return {"gpu-driver": record.report.driver, "gpu-cuda": record.report.cuda}

    def _pod_side(self, question: Question) -> PodSide:
        known = self._decisions.of_pod(question.pod.metadata.namespace, question.pod.metadata.name)
        last = known.get(Verb.FILTER)
        return PodSide(
            pod=question.pod,
            request=question.request,
            diagnosis=question.diagnosis,
            prefix=self._settings.key_prefix,
            schedulers=self._settings.admission.schedulers,
            last_filter=last if last is not None and last.pod_uid == question.pod.metadata.uid else None,
        )

    def _waits(self, question: Question) -> tuple[Wait, ...]:
        """Return the least that would have to end, device by device, for a pod with one share; the least first."""
        request, diagnosis = question.request, question.diagnosis
        if request is None or diagnosis is None or len(request.containers) != 1 or request.containers[0].count != 1:
            return ()
        found = [wait for node in diagnosis.nodes for wait in self._waits_on(node)]
        found.sort(key=lambda wait: (len(wait.pods), wait.frees_mib, wait.node, wait.uuid))
        return tuple(found[:_MOST_WAITS])

    def _waits_on(self, node: NodeDetail) -> Iterable[Wait]:
        holdings = tuple(self._store.ledger.on_node(node.node))
        for device in node.devices:
            short = device.shortages[0] if device.shortages else None
            if short is None or short.hindrance not in (Hindrance.MEMORY, Hindrance.COMPUTE):
                continue
            shares = _shares_on(device.uuid, holdings)
            least = _least(shares, short.missing_mib, short.missing_milli)
            if least:
                mib, milli = sum(shares[name][0] for name in least), sum(shares[name][1] for name in least)
                yield Wait(node.node, device.uuid, least, mib, milli)


def diagnosed(question: Question) -> Question:
    """Return the question with its diagnosis, where there is something to diagnose. Pure, and costs milliseconds."""
    if question.request is None or not question.request.asks_gpu:
        return question
    assert question.policy is not None
    assert question.outlook is not None
    if question.request.plugin:
        theirs = diagnose_plugin(question.request, question.fleet, question.policy, question.outlook)
        return replace(question, plugin=theirs)
    found = diagnose(question.request, question.fleet, question.policy, question.outlook)
    return replace(question, diagnosis=found)


def _state(question: Question, holding: Holding | None) -> State:
    pod = question.pod
    if pod.is_terminal:
        return State.OVER
    if question.problems:
        return State.INVALID
    if pod.spec.node_name or holding is not None:
        return State.PLACED
    return State.WAITING if question.diagnosis is not None or question.plugin is not None else State.NOT_OURS


def _shares_on(uuid: str, holdings: Iterable[Holding]) -> dict[str, tuple[int, int]]:
    """Return what each pod books of a device, the largest first, within a bound."""
    shares = {
        f"{holding.pod.namespace}/{holding.pod.name}": (booking.memory_mib, booking.compute_milli)
        for holding in holdings
        for booking in holding.booked
        if booking.uuid == uuid
    }
    return dict(sorted(shares.items(), key=lambda entry: (-entry[1][0], -entry[1][1], entry[0]))[:_MOST_HOLDERS])


def _least(shares: Mapping[str, tuple[int, int]], mib: int, milli: int) -> tuple[str, ...]:
    """Return the fewest pods whose end frees so much, among those the ones that free least; empty where none do."""
    for count in range(1, min(_ENDING_TOGETHER, len(shares)) + 1):
        enough = [
            names
            for names in combinations(shares, count)
            if sum(shares[name][0] for name in names) >= mib and sum(shares[name][1] for name in names) >= milli
        ]
        if enough:
            return min(enough, key=lambda names: (sum(shares[name][0] for name in names), names))
    return ()
