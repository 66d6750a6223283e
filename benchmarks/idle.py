"""``make bench NAME=idle``: what it costs when nothing can be placed.

    python -m benchmarks.idle [--nodes 5000] [--waiting 200] [--seconds 20] [--most-percent 25] [--most-ratio 5]

Pods that fit nowhere wait; twice a second an event wakes all of them, and kube-scheduler's part asks for each again,
with every node's name, one by one. Every node's agent sends its heartbeat each 15 seconds, with other loads than
before. Measured is the CPU time of the product as part of one core, and how many wakings it kept up with. ``to_floor``
is the CPU time of one ask beside the time that the floor (``benchmarks.floor``) takes for as many bytes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import msgspec

from benchmarks.client import KeepAliveClient
from benchmarks.cluster import NAMESPACE, BenchCluster, bench_cluster, encoded, pod_object
from benchmarks.latency import floor_server
from benchmarks.pressure import pressure
from benchmarks.results import quantile, show

HEARTBEAT_S = 15.0
WAKE_EVERY_S = 0.5
_SHAPES = 8
_TOO_MUCH_MIB = 4_000_000

Row = dict[str, str | int | float | bool | None]


def waiting_bodies(cluster: BenchCluster, count: int) -> list[bytes]:
    """Create pods that fit nowhere, and return what the scheduler asks for each."""
    bodies = []
    for number in range(count):
        gpu = {"tangram.dev/gpu-memory": str(_TOO_MUCH_MIB + number % _SHAPES)}
        created = cluster.api.create("pods", NAMESPACE, pod_object(f"waiting-{number}", gpu, 1000))
        at = number * len(cluster.names) // count
        names = cluster.names[at:] + cluster.names[:at]
        bodies.append(encoded({"Pod": msgspec.json.decode(created), "Nodes": None, "NodeNames": names}))
    return bodies


def measure(nodes: int, waiting: int, seconds: float) -> Row:
    """Return the one row."""
    with bench_cluster(nodes) as cluster, KeepAliveClient(cluster.port) as client:
        bodies = waiting_bodies(cluster, waiting)
        _wake(client, bodies)
        with pressure(cluster, nodes / HEARTBEAT_S, 0.0):
            cpu, started, wakings = cluster.cpu_seconds(), time.monotonic(), 0
            while time.monotonic() - started < seconds:
                _wake(client, bodies)
                wakings += 1
                time.sleep(max(0.0, started + wakings * WAKE_EVERY_S - time.monotonic()))
            elapsed_s, used_s = time.monotonic() - started, cluster.cpu_seconds() - cpu
        floor_s = _floor(bodies, len(client.post("/v1/filter", bodies[0]).body))
        return {
            "nodes": nodes,
            "waiting": waiting,
            "reports_per_s": round(nodes / HEARTBEAT_S, 1),
            "wakings_per_s": round(wakings / elapsed_s, 2),
            "asked_per_s": round(wakings * waiting / elapsed_s, 1),
            "cpu_percent": round(used_s / elapsed_s * 100, 1),
            "us_per_ask": round(used_s / (wakings * waiting) * 1e6, 1),
            "to_floor": round(used_s / (wakings * waiting) / floor_s, 2),
            "rss_mib": round(cluster.resident_mib(), 1),
        }


def _wake(client: KeepAliveClient, bodies: Sequence[bytes]) -> None:
    for body in bodies:
        answer = client.post("/v1/filter", body)
        if answer.status != 200 or b'"NodeNames":[]' not in answer.body:
            raise RuntimeError(f"filter: {answer.status} {answer.body[:300]!r}")


def _floor(bodies: Sequence[bytes], answer_bytes: int) -> float:
    """Return the median of the seconds in which the floor takes such a body and gives as long an answer."""
    with floor_server() as port, KeepAliveClient(port) as client:
        return quantile([client.post(f"/{answer_bytes}", body).seconds for body in bodies], 0.5)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; return 1 where the limit that was given is passed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--waiting", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--most-percent", type=float)
    parser.add_argument("--most-ratio", type=float)
    options = parser.parse_args(arguments)
    row = measure(options.nodes, options.waiting, options.seconds)
    show("idle", [row])
    limits = (("cpu_percent", options.most_percent), ("to_floor", options.most_ratio))
    passed = [name for name, most in limits if most is not None and float(row[name] or 0) > most]
    for name in passed:
        print(f"too much: {name} is {row[name]}", file=sys.stderr)
    return int(bool(passed))


if __name__ == "__main__":
    sys.exit(main())
