"""Everything around the product while it works: scheduler, kubelets, users, and the audit of what it does."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from extender.clock import Clock, SystemClock
from extender.errors import ExtenderError
from extender.kube import KubeClient
from extender.logs import set_up_logs
from extender.reflector import ReflectorThread
from extender.simulation.agents import devices_of
from extender.simulation.audit import Capacity, audit
from extender.simulation.cluster import Cluster
from extender.simulation.fleet import SimulatedHost
from extender.simulation.handlers import NodeHandler, PodHandler
from extender.simulation.kubelet import Kubelet
from extender.simulation.nodefit import SEEN_NODES, SEEN_PODS
from extender.simulation.options import Options
from extender.simulation.product import Product
from extender.simulation.progress import Story, decisions_made, grouped
from extender.simulation.scheduler import Outlets, Scheduler
from extender.simulation.trace import load_pods
from extender.simulation.verbs import ExtenderVerbs
from extender.simulation.workload import SCHEDULER_NAME, Arrival, Tempo, arrivals

_THREADS = 24
_MOST_WAITING = 120
_PROGRESS_S = 2.0
_REASONS_TOLD = 5
_FILL_SHARE = 0.5
_FILL_S = 15.0


@dataclass(slots=True)
class _World:
    """The parts of one run. ``runs_s`` is how long each pod that was created is to run, by namespace and name."""

    cluster: Cluster
    product: Product
    scheduler: Scheduler
    verbs: ExtenderVerbs
    capacities: dict[str, Capacity]
    story: Story
    clock: Clock
    runs_s: dict[tuple[str, str], float] = field(default_factory=dict)


async def live(options: Options, api_url: str, product: Product, hosts: Sequence[SimulatedHost]) -> int:
    """Let the cluster live until the time is over or somebody interrupts; return the exit status."""
    set_up_logs("error")
    stopped = _stop_event()
    async with _world(options, api_url, product, hosts) as world:
        began = world.clock.now()
        users = asyncio.create_task(_users(world, options), name="users")
        try:
            await _watch_over(world, began, options.for_s, stopped)
            return await _conclude(world, world.clock.now() - began)
        finally:
            users.cancel()
            await asyncio.gather(users, return_exceptions=True)


@asynccontextmanager
async def _world(
    options: Options, api_url: str, product: Product, hosts: Sequence[SimulatedHost]
) -> AsyncIterator[_World]:
    async with AsyncExitStack() as stack:
        threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="simulation")
        stack.callback(threads.shutdown, cancel_futures=True)
        cluster = Cluster(api_url)
        stack.callback(cluster.close)
        verbs = ExtenderVerbs(product.url)
        stack.callback(verbs.close)
        kube = KubeClient.from_url(api_url)
        stack.push_async_callback(kube.close)
        clock = SystemClock()
        scheduler = Scheduler(Outlets(verbs, kube, cluster, threads), clock, SCHEDULER_NAME, options.seed)
        capacities = _capacities(hosts)
        world = _World(cluster, product, scheduler, verbs, capacities, Story(len(hosts), len(capacities)), clock)
        await stack.enter_async_context(_running(world, kube, threads))
        yield world


def _capacities(hosts: Sequence[SimulatedHost]) -> dict[str, Capacity]:
    """Return what every device has, from the descriptions that the agents work from."""
    return {
        device.uuid: Capacity(host.name, device.total_mib - device.reserved_mib, device.sm_milli)
        for host in hosts
        for device in devices_of(host)
    }


@asynccontextmanager
async def _running(world: _World, kube: KubeClient, threads: ThreadPoolExecutor) -> AsyncIterator[None]:
    """Let the scheduler and the kubelets live."""
    kubelet = Kubelet(world.cluster, threads, world.clock, lambda *pod: world.runs_s.pop(pod, 1.0))
    pods = ReflectorThread(kube, SEEN_PODS, PodHandler(world.scheduler, [kubelet.on_pod]))
    nodes = ReflectorThread(kube, SEEN_NODES, NodeHandler(world.scheduler))
    pods.start()
    nodes.start()
    scheduling = asyncio.create_task(world.scheduler.run(), name="scheduler")
    try:
        yield
    finally:
        scheduling.cancel()
        await asyncio.gather(scheduling, return_exceptions=True)
        await kubelet.stop()
        await asyncio.gather(pods.stop(), nodes.stop())


async def _users(world: _World, options: Options) -> None:
    """Create the trace's pods when their time has come; hold back while too many wait."""
    fill_s = _FILL_S if options.for_s is None else max(options.for_s * _FILL_SHARE, 1.0)
    began = world.clock.now()
    for arrival in arrivals(load_pods(), world.story.devices, Tempo(fill_s=fill_s), options.seed):
        await world.clock.sleep(max(began + arrival.at_s - world.clock.now(), 0.0))
        while len(world.scheduler.waiting()) >= _MOST_WAITING:
            await world.clock.sleep(0.1)
        await _create(world, arrival)


async def _create(world: _World, arrival: Arrival) -> None:
    world.runs_s[arrival.namespace, arrival.name] = arrival.runs_s
    try:
        await asyncio.to_thread(world.cluster.create_pod, arrival.namespace, arrival.manifest)
    except ExtenderError as problem:
        print(f"pod {arrival.namespace}/{arrival.name}: {problem}", file=sys.stderr)


async def _watch_over(world: _World, began: float, for_s: float | None, stopped: asyncio.Event) -> None:
    """Audit and report every few seconds until the time is over, somebody interrupts, or the product ends."""
    while not stopped.is_set():
        elapsed_s = world.clock.now() - began
        left_s = _PROGRESS_S if for_s is None else min(_PROGRESS_S, for_s - elapsed_s)
        if left_s <= 0:
            return
        try:
            async with asyncio.timeout(left_s):
                await stopped.wait()
        except TimeoutError:
            world.product.check()
            await _audit(world)
            print(_progress(world, world.clock.now() - began), flush=True)


def _progress(world: _World, elapsed_s: float) -> str:
    scheduler = world.scheduler
    return world.story.line(elapsed_s, scheduler.counts, len(scheduler.waiting()), world.verbs.timings)


async def _audit(world: _World) -> None:
    pods = await asyncio.to_thread(world.cluster.list_pods)
    world.story.note(audit(pods, world.capacities))


async def _conclude(world: _World, seconds: float) -> int:
    """Print why pods wait, and the summary; return the exit status."""
    await _audit(world)
    waiting = world.scheduler.waiting()
    for count, reason in grouped(waiting)[:_REASONS_TOLD]:
        print(f"{count} waiting: {reason or 'not tried yet'}")
    is_serving = await asyncio.to_thread(world.product.is_serving)
    if not is_serving:
        print("the extender does not answer", file=sys.stderr)
    decisions = decisions_made(await asyncio.to_thread(world.product.metrics))
    print(
        world.story.summary(seconds, world.scheduler.counts, len(waiting), world.verbs.timings, decisions), flush=True
    )
    is_sound = not world.story.oversubscribed and not world.story.unreadable
    return 0 if is_sound and is_serving and world.scheduler.counts.bound else 1


def _stop_event() -> asyncio.Event:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    return stopped
