"""A whole cluster to look at: the real control plane, hollow nodes and whatever is to run beside them, until Ctrl-C.

`run_cluster` knows nothing of the product. Its caller says what to start once the API server answers, as programs that
are given a `Cluster`: the extender, the simulated agents, a load generator. `product_cluster` says it for the product:
`python -m tests.controlplane.cluster [--nodes N]`.
"""

import argparse
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from node_agent.simulated_builders import mixed_fleet
from tests.controlplane.access import User
from tests.controlplane.build import binaries
from tests.controlplane.hollow import HollowNodes
from tests.controlplane.kubelet import HollowNode
from tests.controlplane.loopback import free_ports
from tests.controlplane.modules import KUBERNETES_VERSION
from tests.controlplane.plane import ControlPlane
from tests.controlplane.process import Process
from tests.controlplane.scheduler import Configuration, plain_configuration, scheduler_configuration
from tests.controlplane.stack import EXTENDER, advertised, allow_extender, extender_command, extender_environment

_CHECK_EVERY_S = 0.5
_NODES = 12
_MOST_NODES = 200


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a program beside the control plane needs to know."""

    plane: ControlPlane
    directory: Path
    kubeconfig: Path


@dataclass(frozen=True, slots=True)
class Program:
    """A command to run beside the control plane; `is_ready`, when given, is waited for at most `ready_s`."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    is_ready: Callable[[], bool] | None = None
    ready_s: float = 30.0


def run_cluster(
    nodes: Sequence[HollowNode],
    *,
    programs: Callable[[Cluster], Sequence[Program]] = lambda _: (),
    schedulers: Sequence[Configuration] = (),
    users: Sequence[User] = (),
    notes: Sequence[str] = (),
    kubernetes_version: str = KUBERNETES_VERSION,
    for_s: float | None = None,
) -> None:
    """Bring a cluster up, say how to talk to it, and keep it until Ctrl-C, SIGTERM, or the end of `for_s`.

    The stock scheduler runs besides `schedulers`, so that pods without our resources are served as anywhere; `notes`
    are said besides. Raises ProcessDied when any process ends by itself.
    """
    with (
        _ended_by_signals() as end,
        open_cluster(nodes, programs, schedulers, kubernetes_version, users) as (cluster, running),
    ):
        kubectl = f"{cluster.plane.kubectl} --kubeconfig {cluster.kubeconfig}"
        _say(f"ready. Talk to it with:\n\n  {kubectl} get nodes,pods -A\n")
        for note in notes:
            _say(note)
        _say(f"logs are in {cluster.directory}; Ctrl-C ends everything")
        deadline = None if for_s is None else time.monotonic() + for_s
        while not end.wait(_CHECK_EVERY_S) and (deadline is None or time.monotonic() < deadline):
            cluster.plane.check()
            for process in running:
                process.check()


@contextmanager
def open_cluster(
    nodes: Sequence[HollowNode],
    programs: Callable[[Cluster], Sequence[Program]] = lambda _: (),
    schedulers: Sequence[Configuration] = (),
    kubernetes_version: str = KUBERNETES_VERSION,
    users: Sequence[User] = (),
) -> Iterator[tuple[Cluster, list[Process]]]:
    """Bring a cluster up for the length of a context, and give it with the processes of its programs."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tangram-cluster-")))
        plane = stack.enter_context(
            ControlPlane(
                binaries(kubernetes_version=kubernetes_version), directory, controller_manager=True, users=users
            )
        )
        stack.enter_context(HollowNodes(plane.endpoint(), nodes))
        cluster = Cluster(plane, directory, plane.kubeconfig(directory / "admin.kubeconfig"))
        running = [_start(program, directory, stack) for program in programs(cluster)]
        for position, configuration in enumerate((plain_configuration(), *schedulers)):
            plane.start_scheduler(configuration, f"kube-scheduler-{position}")
        yield cluster, running


def product_cluster(node_count: int) -> None:
    """Run a cluster with the product on `node_count` mixed nodes of simulated GPUs until Ctrl-C."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"

    def programs(cluster: Cluster) -> Sequence[Program]:
        allow_extender(cluster.plane)
        kubeconfig = cluster.plane.kubeconfig(cluster.directory / "extender.kubeconfig", EXTENDER)
        environment = extender_environment(str(kubeconfig), port)
        agents = (sys.executable, "-m", "tests.controlplane.agents", url, str(node_count))
        return (
            Program("extender", extender_command(), environment, lambda: _answers(f"{url}/readyz")),
            Program("agents", agents, is_ready=lambda: _nodes_advertise(cluster.plane), ready_s=60.0),
        )

    run_cluster(
        [HollowNode(each.node) for each in mixed_fleet(node_count)],
        programs=programs,
        schedulers=[scheduler_configuration(url)],
        users=[EXTENDER],
        notes=[f"the live page is {url}/"],
    )


def _answers(url: str) -> bool:
    try:
        return httpx2.get(url, timeout=2.0, trust_env=False).is_success
    except httpx2.TransportError:
        return False


def _nodes_advertise(plane: ControlPlane) -> bool:
    return all(advertised(node).get("gpu-memory") for node in plane.api.items("/api/v1/nodes"))


def _start(program: Program, directory: Path, stack: ExitStack) -> Process:
    process = Process(program.name, program.command, directory / f"{program.name}.log", program.environment)
    process.start()
    stack.callback(process.stop)
    if program.is_ready is not None:
        process.wait_until(program.is_ready, within_s=program.ready_s)
    return process


@contextmanager
def _ended_by_signals() -> Iterator[threading.Event]:
    """Give an event that Ctrl-C and SIGTERM set instead of what they do otherwise; main thread only."""
    end = threading.Event()
    previous = {number: signal.signal(number, lambda *_: end.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield end
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _say(line: str) -> None:
    print(f"cluster: {line}", file=sys.stderr, flush=True)


def _node_count(text: str) -> int:
    count = int(text) if text.isdecimal() else 0
    if not 1 <= count <= _MOST_NODES:
        message = f"found {text!r}, valid is a number from 1 to {_MOST_NODES}"
        raise argparse.ArgumentTypeError(message)
    return count


def main() -> None:
    """Run the product's cluster as the command line says."""
    parser = argparse.ArgumentParser(prog="make cluster", description="A real control plane with simulated GPU nodes.")
    parser.add_argument("--nodes", type=_node_count, default=_NODES, help=f"1 to {_MOST_NODES}, {_NODES} by default")
    product_cluster(parser.parse_args().nodes)


if __name__ == "__main__":
    main()
