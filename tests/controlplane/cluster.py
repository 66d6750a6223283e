"""A whole cluster to look at: the real control plane, hollow nodes and whatever is to run beside them, until Ctrl-C.

`run_cluster` knows nothing of the product. Its caller says what to start once the API server answers, as programs that
are given a `Cluster`: the extender, the simulated agents, a load generator.
"""

import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.controlplane.build import binaries
from tests.controlplane.hollow import HollowNodes
from tests.controlplane.kubelet import HollowNode
from tests.controlplane.modules import KUBERNETES_VERSION
from tests.controlplane.plane import ControlPlane
from tests.controlplane.process import Process
from tests.controlplane.scheduler import Configuration, plain_configuration

_CHECK_EVERY_S = 0.5


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
    kubernetes_version: str = KUBERNETES_VERSION,
    for_s: float | None = None,
) -> None:
    """Bring a cluster up, say how to talk to it, and keep it until Ctrl-C, SIGTERM, or the end of `for_s`.

    The stock scheduler runs besides `schedulers`, so that pods without our resources are served as anywhere. Raises
    ProcessDied when any process ends by itself.
    """
    with (
        _ended_by_signals() as end,
        open_cluster(nodes, programs, schedulers, kubernetes_version) as (cluster, running),
    ):
        kubectl = f"{cluster.plane.kubectl} --kubeconfig {cluster.kubeconfig}"
        _say(f"ready. Talk to it with:\n\n  {kubectl} get nodes,pods -A\n")
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
) -> Iterator[tuple[Cluster, list[Process]]]:
    """Bring a cluster up for the length of a context, and give it with the processes of its programs."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tangram-cluster-")))
        plane = stack.enter_context(
            ControlPlane(binaries(kubernetes_version=kubernetes_version), directory, controller_manager=True)
        )
        stack.enter_context(HollowNodes(plane.endpoint(), nodes))
        cluster = Cluster(plane, directory, plane.kubeconfig(directory / "admin.kubeconfig"))
        running = [_start(program, directory, stack) for program in programs(cluster)]
        for position, configuration in enumerate((plain_configuration(), *schedulers)):
            plane.start_scheduler(configuration, f"kube-scheduler-{position}")
        yield cluster, running


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
