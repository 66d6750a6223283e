"""Wires the extender together; no logic. The lifespan owns every task and every thread.

``create_app`` returns an ASGI application: the scheduler's and the agents' routes raw in front, FastAPI behind.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import structlog
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from extender.admission import door
from extender.advertiser import Advertiser
from extender.alarms import INTERVAL_S as ALARM_INTERVAL_S
from extender.alarms import Alarms
from extender.allocation import Injector
from extender.at_once import AtOnceRoute
from extender.binder import Binder
from extender.clock import Clock, SystemClock
from extender.decisions import Decisions
from extender.evaluations import Evaluations
from extender.exposing import expose_state
from extender.forthcoming import Forthcoming
from extender.holdings import ObservedPod
from extender.insight import Insight, World
from extender.kube import Kube
from extender.metrics import Metrics
from extender.objects import Node, Pod
from extender.observing import NodeHandler, PodHandler
from extender.pages.live import LiveView
from extender.pages.trace import INTERVAL_S as TRACE_INTERVAL_S
from extender.readiness import NODES, PODS, Readiness
from extender.reflection import NODES as NODE_KIND
from extender.reflection import PODS as POD_KIND
from extender.reflection import ListWatch, ReflectorStats
from extender.reflector import ReflectorThread
from extender.routes.admission import admission_routes, counting
from extender.routes.api import api_router
from extender.routes.insight import for_viewers_only, insight_router
from extender.routes.ops import ops_router
from extender.routes.pages import page_routes
from extender.routes.raw import FrontDoor, RawRoute, later
from extender.routes.reports import Anyone, Guard, ReportRoutes
from extender.routes.scheduler import SchedulerRoutes
from extender.services import Services
from extender.settings import Settings
from extender.store import ClusterStore
from extender.trouble_metrics import ReflectorCollector, TroubleCollector
from extender.usage import INTERVAL_S as USAGE_INTERVAL_S
from extender.viewers import Viewers, ViewersOnly, everyone
from extender.waker import Waker
from scoring.outlook import Outlook

_LOG = structlog.get_logger(__name__)
_EXPIRE_INTERVAL_S = 1.0
_OUTLOOK_INTERVAL_S = 2.0
_FOLLOW_UP_INTERVAL_S = 1.0
_GENERATIONS_PER_S = 1_000_000
"""So that an agent never takes bookings from before a restart for the present ones: no node changes so often."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an extender stands in.

    ``source``    lists and watches; None leaves the store to whoever calls its verbs
    ``may_act``   whether this replica holds the lease
    ``guard``     who may report for which node
    ``viewers``   who may see pod names
    """

    kube: Kube
    source: ListWatch | None = None
    clock: Clock = field(default_factory=SystemClock)
    may_act: Callable[[], bool] = lambda: True
    guard: Guard = field(default_factory=Anyone)
    viewers: Viewers = everyone
    injector: Injector = Injector.ENVIRONMENT


class Extender:
    """The ASGI application, with its parts in reach for whoever embeds it."""

    def __init__(self, settings: Settings, around: Surroundings) -> None:
        self.services = build_services(settings, around)
        self._around = around
        self._advertiser = Advertiser(
            self.services.store, around.kube, settings, around.clock, self.services.metrics, around.may_act
        )
        self.alarms = self._watch_trouble()
        # FastAPI's own pages about the API would load scripts from elsewhere.
        web = FastAPI(title="Tangram", lifespan=self._lifespan, redirect_slashes=False, docs_url=None, redoc_url=None)
        web.include_router(api_router(self.services))
        web.include_router(insight_router(self.services))
        web.include_router(ops_router(self.services))
        self._view = LiveView(self.services.store, self.services.decisions, around.clock)
        web.include_router(page_routes(self._view, around.viewers))
        web.add_exception_handler(ViewersOnly, for_viewers_only)
        self._reflectors: tuple[ReflectorThread[Node] | ReflectorThread[Pod], ...] = ()
        expose_state(self.services, self._view.waiting, self._reflector_stats)
        self.web = web
        self._reports = ReportRoutes(self.services, around.guard)
        scheduler = SchedulerRoutes(self.services)
        self.at_once = self._at_once_routes(scheduler)
        self._door = FrontDoor(self._raw_routes(scheduler), web)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        await self._door(scope, receive, send)

    def _watch_trouble(self) -> Alarms:
        """Return what tells of devices in trouble; it speaks once the pods on them are known."""
        services, around = self.services, self._around

        def may_speak() -> bool:
            return around.may_act() and not services.readiness.missing(around.clock.now())

        registry = services.metrics.registry
        alarms = Alarms(services.store, around.kube, around.clock, registry, may_speak)
        registry.register(TroubleCollector(services.store, alarms))
        registry.register(ReflectorCollector(self._reflector_stats))
        return alarms

    def pod_handler(self) -> PodHandler:
        """Return what takes pods in from a reflector."""
        store, waiting, evaluations = self.services.store, self._view.waiting, self.services.evaluations

        def on_pod(seen: ObservedPod) -> None:
            store.set_pod(seen)
            evaluations.remember(seen)
            waiting.on_pod(seen, self._around.clock.now())

        def on_gone(uid: str) -> None:
            store.release(uid)
            waiting.on_gone(uid)
            self.services.insight.events.forget(uid)

        return PodHandler(self.services.settings.key_prefix, on_pod, on_gone, lambda: self._listed(PODS))

    def node_handler(self) -> NodeHandler:
        """Return what takes nodes in from a reflector."""
        store = self.services.store
        return NodeHandler(
            self.services.settings.key_prefix, store.set_node, store.remove_node, lambda: self._listed(NODES)
        )

    def _at_once_routes(self, scheduler: SchedulerRoutes) -> Mapping[str, AtOnceRoute]:
        """Return the routes that have nothing to wait for, or only rarely."""
        settings = self.services.settings
        limit = settings.max_scheduler_body_bytes
        return {
            "/v1/filter": AtOnceRoute(scheduler.filter, limit),
            "/v1/prioritize": AtOnceRoute(scheduler.prioritize, limit),
            "/v1/preempt": AtOnceRoute(scheduler.preempt, limit),
            "/v1/reports": AtOnceRoute(self._reports.report_at_once, settings.max_report_body_bytes),
        }

    def _raw_routes(self, scheduler: SchedulerRoutes) -> Mapping[str, RawRoute]:
        settings = self.services.settings
        limit = settings.max_scheduler_body_bytes
        return {
            "/v1/filter": RawRoute(later(scheduler.filter), limit),
            "/v1/prioritize": RawRoute(later(scheduler.prioritize), limit),
            "/v1/preempt": RawRoute(later(scheduler.preempt), limit),
            "/v1/bind": RawRoute(scheduler.bind, limit),
            "/v1/reports": RawRoute(self._reports.report, settings.max_report_body_bytes),
            **admission_routes(
                door(settings, self.services.evaluations.policies, self.services.store.snapshot),
                counting(self.services.metrics.registry),
            ),
        }

    def _reflector_stats(self) -> dict[str, ReflectorStats]:
        return dict(zip((NODES, PODS), (each.stats for each in self._reflectors), strict=False))

    def _listed(self, kind: str) -> None:
        if kind == NODES:
            self.services.store.nodes_listed()
        self.services.readiness.listed(kind, self._around.clock.now())
        gc.collect()
        gc.freeze()

    @asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        self._reflectors = reflectors = self._start_reflectors()
        self.services.insight.history.start()
        tasks = [asyncio.create_task(job(), name=name) for name, job in self._jobs().items()]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._view.stop()
            for reflector in reflectors:
                await reflector.stop()
            await asyncio.to_thread(self.services.insight.history.stop)

    def _start_reflectors(self) -> tuple[ReflectorThread[Node] | ReflectorThread[Pod], ...]:
        source = self._around.source
        if source is None:
            return ()
        nodes = ReflectorThread(source, NODE_KIND, self.node_handler())
        pods = ReflectorThread(source, POD_KIND, self.pod_handler())
        nodes.start()
        pods.start()
        return nodes, pods

    def _jobs(self) -> dict[str, Callable[[], Coroutine[None, None, None]]]:
        services, settings = self.services, self.services.settings
        every = self._every
        return {
            "expire": every(_EXPIRE_INTERVAL_S, self._expire),
            "settle": every(settings.settle_interval_s, self._settle),
            "outlook": every(_OUTLOOK_INTERVAL_S, self._refresh_outlook),
            "advertise": every(settings.advertise_interval_s, self._advertiser.round),
            "alarm": every(ALARM_INTERVAL_S, self.alarms.round),
            "wake": every(min(1.0, settings.wake_interval_s), services.waker.round),
            "follow-up": every(_FOLLOW_UP_INTERVAL_S, services.insight.follow_up),
            "usage": every(USAGE_INTERVAL_S, services.insight.usage.round),
            "trace": every(TRACE_INTERVAL_S, self._view.traces.round),
        }

    def _every(
        self, seconds: float, step: Callable[[], Awaitable[object]]
    ) -> Callable[[], Coroutine[None, None, None]]:
        """Return a job that repeats a step until it is cancelled; a step that raises is logged and tried again."""

        async def job() -> None:
            while True:
                try:
                    await step()
                except Exception:  # noqa: BLE001 - the edge of a task: one bad round must not end it
                    _LOG.exception("job_failed", job=getattr(step, "__qualname__", "?"))
                await self._around.clock.sleep(seconds)

        return job

    async def _expire(self) -> None:
        for name in self.services.store.expire(self._around.clock.now()):
            _LOG.warning("node_stale", node=name)

    async def _settle(self) -> None:
        settled = await self.services.binder.settle()
        if settled:
            self.services.metrics.settled.labels("settled").inc(settled)

    async def _refresh_outlook(self) -> None:
        """Plan anew where enough was learned; in a thread, because solving for prices takes a good part of a second."""
        evaluations, fleet = self.services.evaluations, self.services.store.snapshot()
        mix = evaluations.due(fleet)
        if mix is not None:
            outlook = await asyncio.to_thread(Outlook.of, mix, fleet.kinds)
            evaluations.adopt(outlook, fleet.kinds, self.services.store.snapshot())


def create_app(settings: Settings, around: Surroundings) -> Extender:
    """Return the extender as an ASGI application."""
    return Extender(settings, around)


def build_services(settings: Settings, around: Surroundings) -> Services:
    """Return the parts, wired."""
    clock, metrics = around.clock, Metrics()
    store = ClusterStore(settings, first_generation=int(clock.wall() * _GENERATIONS_PER_S))
    evaluations = Evaluations(settings)
    waker = Waker(around.kube, settings, clock, metrics, around.may_act)
    store.on_growth = waker.note_growth
    decisions = Decisions(settings.decisions_kept)
    world = World(store, evaluations, decisions, around.kube, settings, clock, around.may_act, around.source)
    return Services(
        settings=settings,
        clock=clock,
        store=store,
        readiness=Readiness(lambda: store.unreported, settings.reports_wait_s),
        evaluations=evaluations,
        binder=Binder(store, around.kube, evaluations, settings, clock, around.may_act, around.injector),
        waker=waker,
        decisions=decisions,
        metrics=metrics,
        insight=Insight(world),
        viewers=around.viewers,
        forthcoming=Forthcoming(lambda uid: store.ledger.get(uid) is not None),
    )
