"""``make bench NAME=sync``: a cold start in a full cluster, the memory after it, and a relist while decisions go on.

    python -m benchmarks.sync [--nodes 5000] [--pods 100000] [--decisions 400]

The API server has its answers ready and lives in a process of its own. ``ready_s`` runs from the start of the product
to its first 200 on /readyz, ``empty_ready_s`` is the same for a cluster without nodes and pods: imports and start-up.
The difference is ``lists_s``. Decisions (filter for all nodes, each for another pod) run one after the other, first in
quiet and then from the moment at which every watch ends with 410 until a second after the last page was asked for;
``relist_to_quiet`` is the ratio of the medians.
"""

from __future__ import annotations

import argparse
import multiprocessing
import multiprocessing.connection
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.client import KeepAliveClient
from benchmarks.cluster import (
    NAMESPACE,
    PRODUCTS,
    BenchCluster,
    bound_pods,
    encoded,
    free_port,
    node_object,
    pod_object,
    product_environment,
    push_reports,
    wait_until_ready,
)
from benchmarks.results import quantile, show
from extender.simulation.apiserver import SimulatedApiServer
from extender.simulation.apiserving import ServedApiServer
from extender.simulation.faults import Fault, FaultKind
from extender.simulation.leash import Child

_KINDS = ("nodes", "pods")
_GONE = 410
_UP_S = 600.0
_RELIST_S = 120.0

Row = dict[str, str | int | float | bool | None]


@dataclass(slots=True)
class ApiProcess:
    """An API server in a process of its own; ``ask`` makes it do something and returns what it says."""

    url: str
    control: multiprocessing.connection.Connection

    def ask(self, word: str) -> int:
        """Let it ``relist`` (end every watch with 410) or tell how many ``lists`` were begun since it started."""
        self.control.send(word)
        return int(self.control.recv())


def names_of(nodes: int) -> list[str]:
    """Return the names of the nodes."""
    return [f"node-{number:05d}" for number in range(nodes)]


def serve(control: multiprocessing.connection.Connection, nodes: int, pods: int, port: int) -> None:
    """Fill an API server and serve it until the other side hangs up."""
    api = SimulatedApiServer()
    _fill(api, nodes, pods)
    served = ServedApiServer(api, port).__enter__()
    control.send(served.url)
    try:
        while True:
            if control.recv() == "relist":
                served.__exit__(None, None, None)
                for kind in _KINDS:
                    api.faults.add(Fault("watch", kind, FaultKind.REFUSE, _GONE))
                served = ServedApiServer(api, port).__enter__()
            control.send(sum(api.faults.calls("list", kind) for kind in _KINDS))
    except EOFError:
        served.__exit__(None, None, None)


def _fill(api: SimulatedApiServer, nodes: int, pods: int) -> None:
    """Create the nodes, four pods with devices on each, and pods without devices up to the number asked for."""
    plain = pod_object("", {}, 100)
    for number, name in enumerate(names_of(nodes)):
        api.create("nodes", "", node_object(name))
        held = list(bound_pods(name, PRODUCTS[number % len(PRODUCTS)]))
        others = max(0, pods // nodes - len(held))
        held += [plain | {"spec": plain["spec"] | {"nodeName": name}, "status": {"phase": "Running"}}] * others  # type: ignore[operator]
        for at, pod in enumerate(held):
            metadata = {**pod["metadata"], "name": f"p-{number}-{at}"}  # type: ignore[dict-item]
            api.create("pods", NAMESPACE, pod | {"metadata": metadata})


@contextmanager
def api_process(nodes: int, pods: int) -> Iterator[ApiProcess]:
    """Run an API server with so many objects; it ends with the block."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, nodes, pods, free_port()), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(_UP_S):
            raise TimeoutError(f"the API server was not full within {_UP_S:g} s")
        yield ApiProcess(ours.recv(), ours)
    finally:
        ours.close()
        process.join(10)
        process.kill()


@contextmanager
def product(url: str) -> Iterator[tuple[int, int, float]]:
    """Start the product and yield its port, its process id and the seconds that it took to be ready."""
    port, started = free_port(), time.monotonic()
    child = Child("extender", product_environment(url, port))
    try:
        wait_until_ready(port)
        yield port, child.process_id, time.monotonic() - started
    finally:
        child.stop()


def measure(nodes: int, pods: int, decisions: int) -> Row:
    """Return the one row."""
    with api_process(0, 0) as api, product(api.url) as (_, _, empty_s):
        pass
    with api_process(nodes, pods) as api, product(api.url) as (port, process_id, ready_s):
        cluster = BenchCluster(port, names_of(nodes), SimulatedApiServer(), process_id)
        lists_cpu_s, after_lists_mib = cluster.cpu_seconds(), pss_mib(process_id)
        began = time.monotonic()
        push_reports(cluster, random.Random(1))
        reports_s = time.monotonic() - began
        full_mib = pss_mib(process_id)
        with KeepAliveClient(port) as client:
            quiet = [_decide(client, cluster, number) for number in range(decisions)]
            relisting, relist_s = _relist(client, cluster, api, decisions)
    return {
        "nodes": nodes,
        "pods": pods,
        "empty_ready_s": round(empty_s, 2),
        "ready_s": round(ready_s, 2),
        "lists_s": round(ready_s - empty_s, 2),
        "ready_cpu_s": round(lists_cpu_s, 2),
        "pss_mib_after_lists": round(after_lists_mib),
        "reports_s": round(reports_s, 2),
        "pss_mib": round(full_mib),
        "quiet_p50_ms": _ms(quantile(quiet, 0.5)),
        "quiet_max_ms": _ms(max(quiet)),
        "relist_s": round(relist_s, 2),
        "relist_p50_ms": _ms(quantile(relisting, 0.5)),
        "relist_max_ms": _ms(max(relisting)),
        "relist_to_quiet": round(quantile(relisting, 0.5) / quantile(quiet, 0.5), 2),
        "decisions_in_relist": len(relisting),
    }


def _relist(
    client: KeepAliveClient, cluster: BenchCluster, api: ApiProcess, first: int
) -> tuple[Sequence[float], float]:
    """Make the product list everything anew; return the decisions' times meanwhile, and when the last page came."""
    before, number, times = api.ask("lists"), first, []
    began = time.monotonic()
    api.ask("relist")
    pages_seen, quiet_since = before, began
    while time.monotonic() - began < _RELIST_S:
        times.append(_decide(client, cluster, number))
        number += 1
        if number % 5 == 0:
            pages = api.ask("lists")
            if pages != pages_seen or pages == before:
                pages_seen, quiet_since = pages, time.monotonic()
            elif time.monotonic() - quiet_since > 1.0:
                break
    return times, quiet_since - began


def _decide(client: KeepAliveClient, cluster: BenchCluster, number: int) -> float:
    at = number % len(cluster.names)
    pod = pod_object(f"new-{number}", {"tangram.dev/gpu-memory": "4096"}, 500)
    pod["metadata"] = {**pod["metadata"], "uid": f"uid-new-{number}"}  # type: ignore[dict-item]
    body = encoded({"Pod": pod, "Nodes": None, "NodeNames": cluster.names[at:] + cluster.names[:at]})
    answer = client.post("/v1/filter", body)
    if answer.status != 200:
        raise RuntimeError(f"filter: {answer.status} {answer.body[:300]!r}")
    return answer.seconds


def pss_mib(process_id: int) -> float:
    """Return the proportional set size of a process: what ends with it."""
    for line in Path(f"/proc/{process_id}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; return 1 where a limit that was given is passed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--decisions", type=int, default=400)
    parser.add_argument("--most-lists-s", type=float)
    parser.add_argument("--most-ratio", type=float, help="of the medians during a relist and before it")
    options = parser.parse_args(arguments)
    row = measure(options.nodes, options.pods, options.decisions)
    show("sync", [{"measure": name, "value": value} for name, value in row.items()])
    limits = (("lists_s", options.most_lists_s), ("relist_to_quiet", options.most_ratio))
    passed = [name for name, most in limits if most is not None and float(row[name] or 0) > most]
    for name in passed:
        print(f"too slow: {name} is {row[name]}", file=sys.stderr)
    return int(bool(passed))


if __name__ == "__main__":
    sys.exit(main())
