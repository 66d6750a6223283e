"""The bind transaction: look, assume, write, then confirm or forget.

::

    the pod as filter was sent it, else live, UID equal ── bound here with our allocation ──> success, nothing written
        │ not bound
    assume on the current state ── no room ──> NoLongerFits
        │ reserved
    one Binding with every annotation; UID and resource version, as just seen, are its preconditions
        ├─ bound      confirm
        ├─ refused    forget; where an earlier Binding of this pod may have landed, or on a conflict, read first;
        │             a pod that changed since it was read is bound as it is now
        └─ unknown    keep the reservation and read a few times; the rest is for ``settle`` or the watch

Calls for one pod wait for each other. Nothing is sent after the deadline, which lies below the scheduler's timeout. A
Binding that is on its way for longer is refused: kube-scheduler writes into a pod that it could not bind or place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from extender.allocation import ALLOCATION_KEY, Injector, binding_annotations
from extender.attempt import Attempt, Bound, PodChanged
from extender.clock import Clock
from extender.errors import (
    BoundElsewhere,
    KubeError,
    KubeUnreachable,
    NoLongerFits,
    NotActive,
    OutcomeUnknown,
    PodReplaced,
)
from extender.evaluations import Evaluations
from extender.holdings import Holding, Placing, Reservation, Token
from extender.kube import BindOutcome, BindStatus, Kube
from extender.objects import Pod
from extender.observing import identity, observe_pod
from extender.podspec import pod_request
from extender.settings import Settings
from extender.store import ClusterStore
from extender.turns import Turns
from extender.wire import BindArgs
from scoring.request import Allocation
from scoring.status import Verdict

_CONFLICT = 409
_NOT_FOUND = 404
_FIRST_PAUSE_S = 0.05
_LEASE_POLL_S = 0.1
_TRIES = 3  # of one bind, for a pod that changes between our read and our Binding


class Binder:
    """Binds pods. ``may_act`` tells whether this replica holds the lease."""

    def __init__(
        self,
        store: ClusterStore,
        kube: Kube,
        evaluations: Evaluations,
        settings: Settings,
        clock: Clock,
        may_act: Callable[[], bool] = lambda: True,
        injector: Injector = Injector.ENVIRONMENT,
    ) -> None:
        self._store = store
        self._kube = kube
        self._evaluations = evaluations
        self._settings = settings
        self._clock = clock
        self._may_act = may_act
        self._injector = injector
        self._turns = Turns()
        self._sent: dict[Token, float] = {}

    async def bind(self, args: BindArgs, sent: Pod | None = None) -> Bound:
        """Bind the pod to the node, once, however often it is asked.

        ``sent`` is the pod as kube-scheduler sent it to filter. It saves a read where the books do not know the pod:
        if it has changed since, the API server refuses the Binding for its resource version, and the pod is read.

        Raises BindError children where the placement is lost, InvalidRequest where the pod cannot be understood,
        KubeError where the API server cannot be asked, OutcomeUnknown where nobody knows: the reservation stays.
        """
        deadline = self._clock.now() + self._settings.bind_deadline_s
        async with self._turns.of(args.pod_uid):
            await self._wait_to_act(deadline)
            for _ in range(_TRIES):
                pod = sent if sent is not None and self._is_as_sent(sent, args) else await self._live_pod(args)
                sent = None
                if pod.spec.node_name:
                    return self._already_bound(pod, args)
                try:
                    return await self._post(self._prepare(pod, args, deadline))
                except PodChanged:
                    continue
            raise NoLongerFits(f"the pod changed {_TRIES} times while it was bound")

    async def settle(self) -> int:
        """Read the pods that are assumed while no bind is under way, and settle what can be; return how many were."""
        settled = 0
        for holding in self._store.ledger.assumed():
            uid = holding.pod.uid
            if self._turns.is_taken(uid):
                continue
            async with self._turns.of(uid):
                current = self._store.ledger.get(uid)
                if current is not None and current.token == holding.token:
                    settled += await self._settle(current)
        self._sent = {token: at for token, at in self._sent.items() if self._store.is_open(token)}
        return settled

    # One bind.

    async def _wait_to_act(self, deadline: float) -> None:
        """Wait for the tenure that may be about to begin: a refusal sets the pod back by kube-scheduler's backoff."""
        latest = deadline - self._settings.kube_timeout_s
        while not self._may_act():
            if self._clock.now() >= latest:
                raise NotActive("this replica does not hold the lease")
            await self._clock.sleep(_LEASE_POLL_S)
        if self._clock.now() >= deadline:
            raise NotActive("an earlier bind of this pod took all the time there was")

    async def _live_pod(self, args: BindArgs) -> Pod:
        pod = await self._read(args.pod_namespace, args.pod_name)
        if pod is None or pod.metadata.uid != args.pod_uid:
            self._let_go(args)
            found = "no such pod" if pod is None else f"one with UID {pod.metadata.uid}"
            raise PodReplaced(f"pod {args.pod_namespace}/{args.pod_name}: asked for UID {args.pod_uid}, found {found}")
        return pod

    def _is_as_sent(self, sent: Pod, args: BindArgs) -> bool:
        """Tell whether a pod is the one to bind, unknown to the books, and of a version that can be a precondition."""
        found = sent.metadata
        is_meant = (found.namespace, found.name, found.uid) == (args.pod_namespace, args.pod_name, args.pod_uid)
        return is_meant and bool(found.resource_version) and self._store.ledger.get(found.uid) is None

    def _let_go(self, args: BindArgs) -> None:
        """Free what the pod that is gone held; a UID that is another pod's by our books changes nothing (case S1)."""
        held = self._store.ledger.get(args.pod_uid)
        if held is not None and (held.pod.namespace, held.pod.name) == (args.pod_namespace, args.pod_name):
            self._store.release(args.pod_uid)

    def _already_bound(self, pod: Pod, args: BindArgs) -> Bound:
        seen = observe_pod(pod, self._settings.key_prefix)
        self._store.set_pod(seen)
        name = f"pod {args.pod_namespace}/{args.pod_name}"
        if pod.spec.node_name != args.node:
            raise BoundElsewhere(f"{name} is bound to node {pod.spec.node_name} already")
        if seen.problem:
            raise BoundElsewhere(f"{name} is bound to this node: {seen.problem}")
        return Bound(pod, args.node, seen.allocation, is_repeat=True)

    def _prepare(self, pod: Pod, args: BindArgs, deadline: float) -> Attempt:
        request = pod_request(pod, self._settings.key_prefix)
        policy = self._evaluations.policy_for(request)
        if not request.asks_gpu:
            return Attempt(args, deadline, pod, request, None, self._empty_annotations(pod))
        placing = Placing(identity(pod), request, args.node, policy, self._evaluations.outlook)
        reserved = self._store.assume(placing, self._clock.now())
        if isinstance(reserved, Verdict):
            raise NoLongerFits(reserved.reason.sentence if reserved.reason is not None else "no room")
        if request.plugin:
            return Attempt(args, deadline, pod, request, reserved, self._empty_annotations(pod))
        try:
            annotations = binding_annotations(pod, reserved.allocation, self._settings.key_prefix, self._injector)
        except BaseException:
            self._undo(reserved)
            raise
        return Attempt(args, deadline, pod, request, reserved, annotations)

    def _empty_annotations(self, pod: Pod) -> dict[str, str]:
        """Return our keys that a pod without devices carries or refers to, emptied."""
        prefix = self._settings.key_prefix
        written = binding_annotations(pod, Allocation((), ""), prefix, self._injector)
        if prefix + ALLOCATION_KEY not in pod.annotations:
            del written[prefix + ALLOCATION_KEY]
        return written

    async def _post(self, attempt: Attempt) -> Bound:
        args, reservation = attempt.args, attempt.reservation
        if not self._may_act():
            self._undo(reservation)
            raise NotActive("this replica lost the lease")
        if reservation is not None:
            self._sent[reservation.token] = self._clock.now()
        try:
            outcome = await self._kube.bind(
                args.pod_namespace,
                args.pod_name,
                args.pod_uid,
                args.node,
                attempt.annotations,
                attempt.deadline,
                attempt.pod.metadata.resource_version,
            )
        except BaseException:
            self._doubt(reservation)
            raise
        match outcome.status:
            case BindStatus.BOUND:
                return self._bound(attempt)
            case BindStatus.REFUSED:
                return await self._refused(attempt, outcome)
            case BindStatus.UNKNOWN:
                return await self._unknown(attempt, outcome)

    def _bound(self, attempt: Attempt) -> Bound:
        reservation = attempt.reservation
        if reservation is not None:
            self._store.confirm(reservation.token)
            self._sent.pop(reservation.token, None)
        allocation = reservation.allocation if reservation is not None and not attempt.request.plugin else None
        return Bound(attempt.pod, attempt.args.node, allocation)

    async def _refused(self, attempt: Attempt, outcome: BindOutcome) -> Bound:
        """Undo, unless an earlier Binding of this pod has landed or still may: a conflict can be its echo."""
        reservation, has_changed = attempt.reservation, False
        was_in_doubt = self._is_in_doubt(reservation)
        if outcome.code == _CONFLICT or was_in_doubt:
            try:
                pod = await self._live_pod(attempt.args)
            except KubeError:
                self._undo(reservation)
                raise
            if pod.spec.node_name:
                return self._already_bound(pod, attempt.args)
            has_changed = pod.metadata.resource_version != attempt.pod.metadata.resource_version
        self._undo(reservation)
        if outcome.code == _CONFLICT and has_changed:
            raise PodChanged
        reason = PodReplaced if outcome.code == _NOT_FOUND else NoLongerFits
        raise reason(f"the API server refused the binding: {outcome.message}")

    async def _unknown(self, attempt: Attempt, outcome: BindOutcome) -> Bound:
        """Keep the reservation and look a few times, the pauses doubling, for what became of the Binding."""
        self._doubt(attempt.reservation)
        pause_s = _FIRST_PAUSE_S
        for _ in range(self._settings.bind_reads):
            if self._clock.now() + pause_s + self._settings.kube_timeout_s > attempt.deadline:
                break
            await self._clock.sleep(pause_s)
            pause_s *= 2
            try:
                pod = await self._live_pod(attempt.args)
            except KubeError:
                continue
            if pod.spec.node_name:
                return self._already_bound(pod, attempt.args)
        raise OutcomeUnknown(f"nobody knows whether the binding was written ({outcome.message}); its room is kept")

    async def _read(self, namespace: str, name: str) -> Pod | None:
        try:
            async with asyncio.timeout(self._settings.kube_timeout_s):
                return await self._kube.get_pod(namespace, name)
        except TimeoutError as error:
            raise KubeUnreachable(f"pod {namespace}/{name}: no answer in {self._settings.kube_timeout_s} s") from error

    # Settling.

    async def _settle(self, holding: Holding) -> int:
        try:
            pod = await self._read(holding.pod.namespace, holding.pod.name)
        except KubeError:
            return 0
        if pod is None or pod.metadata.uid != holding.pod.uid:
            self._store.release(holding.pod.uid)
        elif pod.spec.node_name:
            self._store.set_pod(observe_pod(pod, self._settings.key_prefix))
        elif holding.token is not None and self._may_no_longer_land(holding.token):
            self._store.forget(holding.token)
        else:
            return 0
        return 1

    def _may_no_longer_land(self, token: Token) -> bool:
        sent = self._sent.get(token)
        return sent is None or self._clock.now() - sent > self._settings.unknown_settle_s

    def _is_in_doubt(self, reservation: Reservation | None) -> bool:
        return reservation is not None and self._store.is_in_doubt(reservation.token)

    def _doubt(self, reservation: Reservation | None) -> None:
        if reservation is not None:
            self._store.doubt(reservation.token)

    def _undo(self, reservation: Reservation | None) -> None:
        """Forget a reservation, unless an earlier Binding on it may still land."""
        if reservation is not None and not self._is_in_doubt(reservation):
            self._store.forget(reservation.token)
            self._sent.pop(reservation.token, None)
