"""``make run``: the product on an in-memory cluster, busy with the production trace; needs Python and nothing else.

The extender and the agents run as processes of their own, as they do in a cluster. This process is everything around
them: the API server, kube-scheduler, kubelets, users. It prints the address of the live page at once, then how it goes,
and last, where FOR is set, one line of JSON. It fails where a device was given away twice or the extender went down.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from extender.clock import Clock, SystemClock
from extender.errors import ExtenderError
from extender.kube import KubeClient
from extender.logs import set_up_logs
from extender.reflector import ReflectorThread
from extender.simulation.agents import URL_VARIABLE, devices_of
from extender.simulation.apiserver import SimulatedApiServer
from extender.simulation.apiserving import ServedApiServer
from extender.simulation.audit import Capacity, audit
from extender.simulation.cluster import Cluster
from extender.simulation.fleet import SimulatedHost, node_object, simulated_hosts
from extender.simulation.kubelet import Kubelet
from extender.simulation.leash import Child
from extender.simulation.nodefit import SEEN_NODES, SEEN_PODS
from extender.simulation.options import InvalidOption, Options, read_options
from extender.simulation.product import Product, ProductFailed
from extender.simulation.progress import Story, decisions_made, grouped
from extender.simulation.scheduler import NodeHandler, Outlets, PodHandler, Scheduler
from extender.simulation.trace import load_nodes, load_pods
from extender.simulation.verbs import ExtenderVerbs
from extender.simulation.workload import SCHEDULER_NAME, Arrival, Tempo, arrivals

_THREADS = 24
_MOST_WAITING = 120
_PROGRESS_S = 2.0
_FILL_SHARE = 0.4
_FILL_S = 30.0
_WRONG_USAGE = 2


def main(arguments: list[str] | None = None) -> int:
    """Run, and return the exit status: 0, 1 where something was wrong, 2 for options that cannot be used."""
    try:
        options = read_options(sys.argv[1:] if arguments is None else arguments, os.environ)
    except InvalidOption as problem:
        print(problem, file=sys.stderr)
        return _WRONG_USAGE
    set_up_logs("error")
    try:
        return asyncio.run(_simulate(options))
    except ProductFailed as problem:
        print(problem, file=sys.stderr)
        return 1


@dataclass(slots=True)
class _World:
    """Everything around the product."""

    cluster: Cluster
    product: Product
    scheduler: Scheduler
    verbs: ExtenderVerbs
    hosts: tuple[SimulatedHost, ...]
    capacities: dict[str, Capacity]
    story: Story
    clock: Clock
    runs_s: dict[tuple[str, str], float]


async def _simulate(options: Options) -> int:
    began = time.monotonic()
    stopped = _stop_event()
    print(f"Live page: http://127.0.0.1:{options.port}/", flush=True)
    async with _world(options) as world:
        until = None if options.for_s is None else began + options.for_s
        print(
            f"ready after {time.monotonic() - began:.1f} s: {world.story.nodes} nodes, {world.story.devices} devices"
            + ("" if until else "; Ctrl-C ends it"),
            flush=True,
        )
        users = asyncio.create_task(_users(world, options))
        try:
            await _watch_over(world, began, until, stopped)
        finally:
            users.cancel()
            await asyncio.gather(users, return_exceptions=True)
        return await _conclude(world, time.monotonic() - began)


@asynccontextmanager
async def _world(options: Options) -> AsyncIterator[_World]:
    """Set everything up, in the order in which a cluster comes up, and take it down in reverse."""
    hosts = simulated_hosts(load_nodes())
    capacities = {
        device.uuid: Capacity(host.name, device.total_mib - device.reserved_mib, device.sm_milli)
        for host in hosts
        for device in devices_of(host)
    }
    async with AsyncExitStack() as stack:
        threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="simulation")
        stack.callback(threads.shutdown)
        api_url = stack.enter_context(ServedApiServer(SimulatedApiServer())).url
        cluster = Cluster(api_url)
        stack.callback(cluster.close)
        for host in hosts:
            await asyncio.to_thread(cluster.create_node, node_object(host))
        product = Product(options.port, api_url)
        stack.push_async_callback(asyncio.to_thread, product.stop)
        await asyncio.to_thread(product.wait_until_ready)
        agents = Child("extender.simulation.agents", {URL_VARIABLE: product.url})
        stack.push_async_callback(asyncio.to_thread, agents.stop)
        kube = KubeClient.from_url(api_url)
        stack.push_async_callback(kube.close)
        verbs = ExtenderVerbs(product.url)
        stack.callback(verbs.close)
        clock = SystemClock()
        scheduler = Scheduler(Outlets(verbs, kube, cluster, threads), clock, SCHEDULER_NAME, options.seed)
        story = Story(len(hosts), len(capacities))
        world = _World(cluster, product, scheduler, verbs, hosts, capacities, story, clock, {})
        await stack.enter_async_context(_running(world, kube, threads))
        yield world


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


async def _watch_over(world: _World, began: float, until: float | None, stopped: asyncio.Event) -> None:
    """Audit and report every few seconds until the time is over, somebody interrupts, or the product ends."""
    while not stopped.is_set():
        left_s = _PROGRESS_S if until is None else min(_PROGRESS_S, until - time.monotonic())
        if left_s <= 0:
            return
        try:
            await asyncio.wait_for(stopped.wait(), left_s)
        except TimeoutError:
            world.product.check()
            await _audit(world)
            line = world.story.line(
                time.monotonic() - began, world.scheduler.counts, len(world.scheduler.waiting()), world.verbs.timings
            )
            print(line, flush=True)


async def _audit(world: _World) -> None:
    pods = await asyncio.to_thread(world.cluster.list_pods)
    world.story.note(audit(pods, world.capacities))


async def _conclude(world: _World, seconds: float) -> int:
    """Print why pods wait, and the summary; return the exit status."""
    await _audit(world)
    waiting = world.scheduler.waiting()
    for count, reason in grouped(waiting)[:5]:
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


if __name__ == "__main__":
    sys.exit(main())
