"""What kube-scheduler asks: filter, prioritize, preempt, bind.

Each route is the whole story: wire arguments, what the pod asks, every node judged, an answer. Filter and prioritize
write nothing into the books. Whatever goes wrong, the scheduler gets 200 with the reason (prioritize, which has no
place for one, neutral scores); only preempt, whose answer cannot tell an error, uses the status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import structlog

from extender import wire
from extender.decisions import Verb
from extender.errors import EvictionUnderWay, ExtenderError, NotActive
from extender.evaluations import Judgement
from extender.native_names import open_names
from extender.nodenames import UNKNOWN_ROW, NodeNames, SentNodes
from extender.objects import Pod
from extender.observing import identity
from extender.podspec import pod_request
from extender.preempting import worthwhile_victims
from extender.refusals import FilterAnswer, Refusals
from extender.routes.raw import TEXT, Answer, Headers
from extender.routes.record import Recorder, refusals
from extender.services import Memo, Services, head_of
from scoring.errors import ScoringError
from scoring.feasibility import reason_number
from scoring.fleet import ByteArray
from scoring.pipeline import levels_of_rows
from scoring.request import PodRequest
from scoring.status import Code, Reason

_LOG = structlog.get_logger(__name__)

EXPECTED = (ExtenderError, ScoringError)
"""What callers, pods and the world outside cause; anything else is a bug of ours."""


@dataclass(slots=True)
class _Call:
    """One call of a verb, with its answer, which is empty until there is one."""

    answer: Answer


class SchedulerRoutes:
    """The four verbs."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._recorder = Recorder(services)
        self._refusals = Refusals()
        self._seconds = {verb: services.metrics.verb_seconds.labels(verb) for verb in Verb}
        self._ok = {verb: services.metrics.answers.labels(verb, "ok") for verb in Verb}
        self._names = NodeNames(open_names() if services.settings.helper else None)

    def filter(self, body: bytes, headers: Headers) -> Answer:
        """Answer which nodes can take the pod, and why the others cannot."""
        del headers
        with self._guarded(Verb.FILTER, _filter_error) as call:
            call.answer = Answer(self._filter(body))
        return call.answer

    def prioritize(self, body: bytes, headers: Headers) -> Answer:
        """Answer how well each node suits the pod: integers 0 to 10, exactly one 10."""
        del headers
        with self._guarded(Verb.PRIORITIZE, lambda _: _neutral(body)) as call:
            call.answer = Answer(self._prioritize(body))
        return call.answer

    def preempt(self, body: bytes, headers: Headers) -> Answer:
        """Answer on which nodes an eviction would let the pod in, and whom to evict."""
        del headers
        with self._guarded(Verb.PREEMPT, _preempt_error) as call:
            call.answer = Answer(self._preempt(body))
        return call.answer

    async def bind(self, body: bytes, headers: Headers) -> Answer:
        """Bind the pod to the node, and answer whether that was done."""
        del headers
        with self._guarded(Verb.BIND, _bind_error) as call:
            call.answer = Answer(await self._bind(body))
        return call.answer

    def _filter(self, body: bytes) -> bytes:
        started = self._services.clock.now()
        args = wire.split_nodes_args(body) if self._names.checks_names else None
        args = args if args is not None else wire.decode_nodes_args(body)
        self._check_deciding()
        request, judgement = self._judge(args.pod)
        sent = self._names.sent(args, judgement.fleet)
        answer = self._refusals.find(judgement, sent) or self._answered(judgement, sent)
        if len(answer.rows):
            now, head = self._services.clock.now(), head_of(body, args.names_json)
            memo = Memo(now, args.pod, head, answer.passed, answer.rows, request, judgement)
            self._services.memos.keep(memo)
        if len(answer.rows) == 1:
            self._expect(args.pod.metadata.uid, request, judgement, int(answer.rows[0]), started)
        self._recorder.filtered(args.pod, judgement, len(sent), len(answer.rows), answer.reasons, started)
        return answer.body

    def _answered(self, judgement: Judgement, sent: SentNodes) -> FilterAnswer:
        """Work out what to tell of each node."""
        if sent.table is not None:
            keys, reason = wire.filter_keys(judgement.code, judgement.reason)[sent.rows], judgement.reason[sent.rows]
            body, passed = wire.filter_answer_by_table(sent.table, sent.rows, keys)
            fits = keys == wire.FIT_KEY
        else:
            code, reason = _verdicts(judgement, sent)
            body, passed = wire.filter_answer_and_passed(sent.names_json, code, reason)
            fits = code == Code.FIT
        rows = sent.rows if fits.all() else sent.rows[fits]
        answer = FilterAnswer(body, refusals(reason), passed, rows)
        if not len(answer.rows):
            self._refusals.keep(judgement, sent, answer)
        return answer

    def _prioritize(self, body: bytes) -> bytes:
        started = self._services.clock.now()
        self._check_deciding()
        memo = self._services.memos.find(body, started)
        if memo is not None:
            pod, request, judgement = memo.pod, memo.request, memo.judgement
            sent = self._names.known(memo.rows, judgement.fleet)
        else:
            args = wire.decode_nodes_args(body)
            pod, (request, judgement) = args.pod, self._judge(args.pod)
            sent = self._names.sent(args, judgement.fleet)
        uid = pod.metadata.uid
        judgement = self._beside_others(uid, request, judgement, started)
        scores = _levels(judgement, sent.rows) if memo is not None else _levels_where_fitting(judgement, sent)
        if len(scores) and scores.any():
            self._expect(uid, request, judgement, int(sent.rows[scores.argmax()]), started)
        self._recorder.prioritized(pod, judgement, sent, scores, started)
        if sent.table is not None:
            return wire.prioritize_answer_by_table(sent.table, sent.rows, scores)
        return wire.prioritize_answer(sent.names_json, scores)

    def _preempt(self, body: bytes) -> bytes:
        started = self._services.clock.now()
        args = wire.decode_preempt_args(body)
        self._check_deciding()
        services = self._services
        request = pod_request(args.pod, services.settings.key_prefix)
        self._check_evictions(args.pod.metadata.uid, started)
        kept = worthwhile_victims(identity(args.pod), request, args.victims, services.store, services.evaluations)
        services.evictions.allow(args.pod.metadata.uid, kept, started)
        self._recorder.preempted(args.pod, len(args.victims), kept, started)
        return wire.preempt_answer(kept)

    async def _bind(self, body: bytes) -> bytes:
        started = self._services.clock.now()
        args = wire.decode_bind_args(body)
        self._check_deciding()
        try:
            bound = await self._services.binder.bind(args, self._services.memos.take_pod(args.pod_uid))
        except EXPECTED as error:
            self._recorder.not_bound(args, error, started)
            raise
        finally:
            self._services.forthcoming.end(args.pod_uid)
        self._recorder.bound(args, bound, started)
        return wire.bind_answer()

    def _beside_others(self, uid: str, request: PodRequest, judgement: Judgement, now: float) -> Judgement:
        """Return the judgement with scores that heed the binds of other pods that have not come yet."""
        services = self._services
        others = services.forthcoming.shares_of_others(uid, judgement.fleet, services.evaluations.outlook, now)
        return services.evaluations.beside(judgement, request, others) if others else judgement

    def _expect(self, uid: str, request: PodRequest, judgement: Judgement, row: int, now: float) -> None:
        if request.containers:
            node = judgement.fleet.names[row]
            self._services.forthcoming.expect(uid, node, request, judgement.policy, now)

    def _judge(self, pod: Pod) -> tuple[PodRequest, Judgement]:
        services = self._services
        request = pod_request(pod, services.settings.key_prefix)
        fleet = services.store.snapshot()
        services.evaluations.note(pod.metadata.uid, request, fleet)
        return request, services.evaluations.judge(request, fleet, services.store.kept_from(identity(pod)))

    def _check_evictions(self, uid: str, now: float) -> None:
        """Raise EvictionUnderWay while victims of this pod are on their way out; it is woken to ask again."""
        try:
            self._services.evictions.check(uid, self._services.store.ledger, now)
        except EvictionUnderWay as error:
            self._services.waker.note_refusal()
            self._services.waker.note_growth(error.node, by_pod_end=False)
            raise

    def _check_deciding(self) -> None:
        missing = self._services.readiness.missing(self._services.clock.now())
        if missing:
            raise NotActive(missing)

    @contextmanager
    def _guarded(self, verb: Verb, on_error: Callable[[str], Answer]) -> Iterator[_Call]:
        """Whatever is raised within becomes the verb's way of telling an error, counted and logged."""
        call, started, outcome = _Call(Answer(b"")), self._services.clock.now(), "ok"
        try:
            yield call
        except EXPECTED as error:
            outcome = getattr(error, "code", type(error).__name__)
            _LOG.warning("refused", verb=verb, error=str(error))
            call.answer = on_error(str(error))
        except Exception as error:  # noqa: BLE001 - the edge of a route: the scheduler must get its answer
            outcome = "bug"
            _LOG.exception("bug", verb=verb)
            call.answer = on_error(f"internal error of the extender: {type(error).__name__}")
        finally:
            self._seconds[verb].observe(self._services.clock.now() - started)
        (self._ok[verb] if outcome == "ok" else self._services.metrics.answers.labels(verb, outcome)).inc()


def _verdicts(judgement: Judgement, sent: SentNodes) -> tuple[ByteArray, ByteArray]:
    """Return code and reason of every node sent; one that we do not know is refused with its own reason."""
    if not len(judgement.fleet):
        count = len(sent)
        unknown = np.full(count, reason_number(Reason.UNKNOWN_NODE), np.uint8)
        return np.full(count, Code.UNSCHEDULABLE, np.uint8), unknown
    strangers = sent.rows == UNKNOWN_ROW
    code, reason = judgement.code[sent.rows], judgement.reason[sent.rows]
    code[strangers] = Code.UNSCHEDULABLE
    reason[strangers] = reason_number(Reason.UNKNOWN_NODE)
    return code, reason


def _levels(judgement: Judgement, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.int32]:
    """Return 0..10 for nodes on all of which the pod fits."""
    return levels_of_rows(judgement.score, judgement.fleet.order, rows, judgement.policy.helper)


def _levels_where_fitting(judgement: Judgement, sent: SentNodes) -> npt.NDArray[np.int32]:
    """Return 0..10 for every node sent; a node that no longer fits gets 0."""
    scores = np.zeros(len(sent), np.int32)
    if len(judgement.fleet):
        code, _ = _verdicts(judgement, sent)
        fits = np.flatnonzero(code == Code.FIT)
        scores[fits] = _levels(judgement, sent.rows[fits])
    return scores


def _filter_error(message: str) -> Answer:
    return Answer(wire.filter_answer((), {}, {}, message))


def _bind_error(message: str) -> Answer:
    return Answer(wire.bind_answer(message))


def _preempt_error(message: str) -> Answer:
    return Answer(message.encode(), 503, TEXT)


def _neutral(body: bytes) -> Answer:
    """Return 0 for every node that was sent, as far as names can be read."""
    try:
        names = wire.quote(tuple(dict.fromkeys(wire.decode_nodes_args(body).names())))
    except ExtenderError:
        names = np.empty(0, object)
    return Answer(wire.prioritize_answer(names, np.zeros(len(names), np.int32)))
