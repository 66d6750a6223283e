"""A small cluster to be scraped, in a process of its own: ``python -m tests.prometheus.town``, a ``Plan`` as argument.

The extender and one real agent a node run as processes, the agents on simulated GPUs with faults planted; around them
the in-memory API server, scheduler and users of ``make run``. It prints ``settled`` when the workload has run for its
time, goes on serving, and ends when its standard input closes.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from extender.simulation.apiserver import SimulatedApiServer
from extender.simulation.apiserving import ServedApiServer
from extender.simulation.cluster import Cluster
from extender.simulation.faults import Fault, FaultKind
from extender.simulation.fleet import NodeGroup, SimulatedHost, node_object, simulated_hosts
from extender.simulation.leash import Child
from extender.simulation.options import Options
from extender.simulation.product import Product
from extender.simulation.trace import load_nodes
from extender.simulation.world import live

GROUPS = (
    NodeGroup("t4", 1, ({"product": "T4", "count": 4},), ("T4", 4)),
    NodeGroup("v100", 1, ({"product": "V100", "count": 8},), ("V100M32", 8)),
    NodeGroup(
        "a100", 1, ({"product": "A100", "count": 3}, {"product": "A100", "mig": ["3g.40gb", "1g.10gb"]}), ("G2", 8)
    ),
    NodeGroup(
        "l4", 1, ({"product": "L4", "count": 3}, {"product": "L4", "foreign": [{"memory_mib": 9000}]}), ("T4", 4)
    ),
)
XID_AT_S = 28.0
"""Late enough that pods hold the device that fails."""


class Plan(msgspec.Struct, frozen=True):
    """How long the workload runs, and on which ports product and agents (by node) are."""

    runs_s: float
    product_port: int
    agent_ports: dict[str, int]


@dataclass(frozen=True, slots=True)
class Planted:
    """What is wrong on a node, in the words of its description."""

    faults: tuple[dict[str, object], ...] = ()
    pods: dict[str, float] | None = None


PLANTED = {
    "v100-1": Planted(faults=tuple({"kind": "xid", "device": at, "xid": 79, "at_s": XID_AT_S} for at in range(8))),
    "t4-1": Planted(pods={"memory_ratio": 1.5, "compute_ratio": 1.5}),
    "a100-1": Planted(pods={"memory_ratio": 0.5, "compute_ratio": 0.01}),
}


def hosts() -> tuple[SimulatedHost, ...]:
    """Return the nodes, with what is wrong on them."""
    return tuple(_with(host, PLANTED.get(host.name, Planted())) for host in simulated_hosts(load_nodes(), GROUPS))


def _with(host: SimulatedHost, planted: Planted) -> SimulatedHost:
    description = {**host.description, "faults": list(planted.faults)}
    if planted.pods is not None:
        description["pods"] = planted.pods
    return SimulatedHost(host.name, host.cpu_milli, host.memory_mib, description)


def main() -> None:
    """Run the town."""
    plan, nodes = msgspec.json.decode(sys.argv[1], type=Plan), hosts()
    api = SimulatedApiServer()
    with ExitStack() as stack:
        url = stack.enter_context(ServedApiServer(api)).url
        with closing(Cluster(url)) as cluster:
            for host in nodes:
                cluster.create_node(node_object(host))
        api.faults.add(Fault("patch", "nodes", FaultKind.REFUSE, status=500), times=3)
        product = Product(plan.product_port, url)
        stack.callback(product.stop)
        stack.enter_context(_agents(plan, nodes, product.url))
        product.wait_until_ready()
        options = Options(for_s=plan.runs_s, seed=3, port=plan.product_port)
        status = asyncio.run(live(options, url, product, nodes))
        print(f"settled {status}", flush=True)
        sys.stdin.read()


@contextmanager
def _agents(plan: Plan, nodes: tuple[SimulatedHost, ...], url: str) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        for host in nodes:
            path = Path(directory) / f"{host.name}.json"
            path.write_text(json.dumps(host.description))
            environment = {"NODE": host.name, "URLS": url, "SIMULATE": str(path), "SWEEP_S": "1", "HEARTBEAT_S": "5"}
            environment |= {"METRICS_HOST": "127.0.0.1", "METRICS_PORT": str(plan.agent_ports[host.name])}
            child = Child("node_agent", {f"TANGRAM_AGENT_{name}": value for name, value in environment.items()})
            stack.callback(child.stop)
        yield


if __name__ == "__main__":
    main()
