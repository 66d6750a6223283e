"""``make bench NAME=latency``: what one decision takes, beside the floor of moving the same bytes.

kube-scheduler's part is played by a raw keep-alive client: filter with every node name (in rotating order), prioritize
with the names that filter let through, bind on the node with 10 against the simulated API server, then the pod is
deleted. Every pod has a fresh UID and one of 100 shapes: 80 of 100 a fraction, 15 whole devices, 5 several devices or
containers; half of them with conditions. Floor calls send as many bytes to the same server, and get as many back, one
by one between the others.

Figures are medians over the pairs of one run on one machine; the ratio to the floor is what to compare. ``closed``
asks as fast as answers come, ``paced`` ten times a second. Under the load ``busy`` 1,000 reports and 200 pod events
come each second; the CPU time per pod then holds theirs too. ``first`` is the filter of a shape that nobody asked for
before. ``api`` is the Binding alone, sent by the client to the API server: of a ``bind``, the rest is the product's.
``--helper off`` measures without the helpers in C.

The API server of the benchmark lives in the client's process. So that its work is not taken for the product's, the
client rests a moment after it created a pod, until the watch has told of it, and measuring begins when the writes that
follow a start are over.

    python -m benchmarks.latency [--nodes 500 5000] [--pairs 400] [--mode closed paced] [--load quiet busy]
                                 [--helper on off] [--most-ratio 12 --most-growth 10.5]

With ``--most-ratio`` or ``--most-growth`` the run fails where the pair's median (closed, quiet) is more times the
floor's, or grows more times from the first size to the last, than that.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import msgspec

from benchmarks.client import Answer, KeepAliveClient
from benchmarks.cluster import DEVICES, NAMESPACE, BenchCluster, bench_cluster, encoded, free_port, pod_object
from benchmarks.pressure import pressure
from benchmarks.results import quantile, show
from extender.kubejson import encode_binding
from scoring.native import Native

Row = dict[str, str | int | float | bool]

SIZES = (500, 5000)
PAIRS = 400
WARM_UP = 150
"""Pods before measuring: enough that most shapes were seen once."""
PACE_S = 0.1
REST_S = 0.004
"""Seconds after a pod was created: the API server, in this process, tells its watchers."""
FIRST_SIGHTS, BINDS_BY_ITSELF = 40, 100
_ALLOCATION_BYTES = 600
"""What the annotations of a Binding come to, about."""
REPORTS_PER_S, POD_EVENTS_PER_S = 1000.0, 200.0
_CONDITIONS = (
    {"tangram.dev/gpu-architecture": ">=ampere"},
    {"tangram.dev/gpu-architecture": "volta,turing"},
    {"tangram.dev/gpu-features": "int8"},
    {"tangram.dev/gpu-total-memory": ">=40Gi"},
    {"tangram.dev/gpu-product": "T4,L4"},
)


@dataclass(frozen=True, slots=True)
class ShapeOfPod:
    """One of the shapes asked for: resources of the GPU, annotations, CPU."""

    gpu: dict[str, str]
    annotations: dict[str, str]
    cpu_milli: int


@dataclass(slots=True)
class Times:
    """Seconds of each call, and the floor's for as many bytes."""

    calls: list[float] = field(default_factory=list)
    floors: list[float] = field(default_factory=list)


def shapes(draw: random.Random, count: int = 100) -> list[ShapeOfPod]:
    """Return the request shapes of the benchmark."""
    made = []
    for number in range(count):
        conditions = draw.choice(_CONDITIONS) if number % 2 else {}
        if number < count * 80 // 100:
            gpu = {"tangram.dev/gpu-memory": str(draw.randrange(1, 24) * 512)}
        elif number < count * 95 // 100:
            gpu = {"tangram.dev/gpu": "1", "tangram.dev/gpu-compute": "100"}
        else:
            gpu = {"tangram.dev/gpu": "2", "tangram.dev/gpu-memory": str(draw.randrange(1, 8) * 1024)}
        made.append(ShapeOfPod(gpu, conditions, draw.choice((500, 1000, 2000, 4000))))
    return made


@contextmanager
def floor_server() -> Iterator[int]:
    """Run the floor in a process of its own; yield its port."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.floor", str(port)])
    try:
        for _ in range(200):
            try:
                KeepAliveClient(port).__exit__(None, None, None)
                break
            except OSError:
                time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait()


class Scheduler:
    """One keep-alive connection to the product and one to the floor, and the pods in turn."""

    def __init__(self, cluster: BenchCluster, floor_port: int, seed: int = 7) -> None:
        self._cluster = cluster
        self._product, self._floor = KeepAliveClient(cluster.port), KeepAliveClient(floor_port)
        self._draw = random.Random(seed)
        self._shapes = shapes(self._draw)
        self._count = 0
        self._api = KeepAliveClient(cluster.api_port)
        self.times = {verb: Times() for verb in ("filter", "prioritize", "pair", "bind", "api", "first")}

    def see_new_shape(self) -> None:
        """Filter a pod whose shape was never asked for."""
        self._count += 1
        shape = ShapeOfPod({"tangram.dev/gpu-memory": str(12_400 + self._count)}, {}, 1000)
        self._call("filter", self._ask(self._create(shape)), "first")
        self._delete()

    def bind_by_itself(self) -> None:
        """Bind a pod without the product, in a Binding as long as the product's."""
        self._count += 1
        metadata = self._create(ShapeOfPod({}, {}, 100))["metadata"]
        annotations = {"example.com/of-the-same-length": "x" * _ALLOCATION_BYTES}
        body = encode_binding(NAMESPACE, metadata["name"], metadata["uid"], self._cluster.names[0], annotations)
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{metadata['name']}/binding"
        answer = self._api.post(path, body)
        if answer.status != 201:
            raise RuntimeError(f"binding: {answer.status} {answer.body[:300]!r}")
        self._note("api", answer, body)
        self._delete()

    def decide(self) -> bool:
        """Filter, prioritize, bind and delete one pod; return whether it fitted anywhere."""
        self._count += 1
        created = self._create(self._draw.choice(self._shapes))
        first = self._call("filter", self._ask(created))
        passed = msgspec.json.decode(first)["NodeNames"]
        if not passed:
            self._delete()
            return False
        second = self._call("prioritize", {"Pod": created, "Nodes": None, "NodeNames": passed})
        self._sum_up()
        best = max(msgspec.json.decode(second), key=lambda host: host["Score"])["Host"]
        metadata = created["metadata"]
        answer = self._call(
            "bind",
            {"PodName": metadata["name"], "PodNamespace": NAMESPACE, "PodUID": metadata["uid"], "Node": best},
        )
        if msgspec.json.decode(answer)["Error"]:
            raise RuntimeError(answer.decode())
        self._delete()
        return True

    def _create(self, shape: ShapeOfPod) -> dict[str, Any]:
        pod = pod_object(f"pod-{self._count}", shape.gpu, shape.cpu_milli, shape.annotations)
        created: dict[str, Any] = msgspec.json.decode(self._cluster.api.create("pods", NAMESPACE, pod))
        time.sleep(REST_S)
        return created

    def _delete(self) -> None:
        self._cluster.api.delete("pods", NAMESPACE, f"pod-{self._count}", {"gracePeriodSeconds": 0})

    def _ask(self, pod: dict[str, Any]) -> dict[str, object]:
        names = self._cluster.names
        at = self._draw.randrange(len(names))
        return {"Pod": pod, "Nodes": None, "NodeNames": names[at:] + names[:at]}

    def _call(self, verb: str, arguments: object, counted_as: str = "") -> bytes:
        body = encoded(arguments)
        answer = self._product.post(f"/v1/{verb}", body)
        if answer.status != 200:
            raise RuntimeError(f"{verb}: {answer.status} {answer.body[:300]!r}")
        self._note(counted_as or verb, answer, body)
        return answer.body

    def _note(self, name: str, answer: Answer, body: bytes) -> None:
        times = self.times[name]
        times.calls.append(answer.seconds)
        times.floors.append(self._floor.post(f"/{len(answer.body)}", body).seconds)

    def _sum_up(self) -> None:
        for name in ("calls", "floors"):
            pair = sum(getattr(self.times[verb], name)[-1] for verb in ("filter", "prioritize"))
            getattr(self.times["pair"], name).append(pair)


def measure(nodes: int, pairs: int, modes: Sequence[str], loads: Sequence[str], helper: str = "on") -> list[Row]:
    """Return one row a verb, mode and load for a cluster of ``nodes``."""
    rows = []
    os.environ["TANGRAM_HELPER"] = "true" if helper == "on" else "false"
    with bench_cluster(nodes) as cluster, floor_server() as floor_port:
        scheduler = Scheduler(cluster, floor_port)
        for _ in range(WARM_UP):
            scheduler.decide()
        for load in loads:
            with pressure(cluster, REPORTS_PER_S, POD_EVENTS_PER_S) if load == "busy" else nullcontext():
                for mode in modes:
                    rows += _series(cluster, scheduler, pairs, mode, load)
    has_helper = helper == "on" and Native.load() is not None
    return [row | {"helper": has_helper} for row in rows]


def _series(cluster: BenchCluster, scheduler: Scheduler, pairs: int, mode: str, load: str) -> list[Row]:
    scheduler.times = {verb: Times() for verb in scheduler.times}
    cpu, started = cluster.cpu_seconds(), time.monotonic()
    placed = tried = 0
    while placed < pairs:
        if mode == "paced":
            time.sleep(max(0.0, started + tried * PACE_S - time.monotonic()))
        placed, tried = placed + scheduler.decide(), tried + 1
    cpu_ms = (cluster.cpu_seconds() - cpu) / pairs * 1000
    for _ in range(FIRST_SIGHTS):
        scheduler.see_new_shape()
    for _ in range(BINDS_BY_ITSELF):
        scheduler.bind_by_itself()
    about: Row = {"nodes": len(cluster.names), "devices": len(cluster.names) * DEVICES, "mode": mode, "load": load}
    rest: Row = {"cpu_ms": round(cpu_ms, 2), "rss_mib": round(cluster.resident_mib(), 1)}
    return [about | {"verb": verb} | _figures(times) | rest for verb, times in scheduler.times.items()]


def _figures(times: Times) -> Row:
    median, floor = quantile(times.calls, 0.5), quantile(times.floors, 0.5)
    return {
        "pairs": len(times.calls),
        "p50_ms": round(median * 1000, 3),
        "p99_ms": round(quantile(times.calls, 0.99) * 1000, 3),
        "max_ms": round(max(times.calls) * 1000, 3),
        "floor_p50_ms": round(floor * 1000, 3),
        "ratio_p50": round(median / floor, 2),
    }


def too_slow(rows: Sequence[Row], most_ratio: float | None, most_growth: float | None) -> list[str]:
    """Return what the pair's medians, closed and quiet, exceed."""
    pairs = [row for row in rows if (row["verb"], row["mode"], row["load"]) == ("pair", "closed", "quiet")]
    problems = [
        f"{row['nodes']} nodes: {row['ratio_p50']} times the floor, at most {most_ratio}"
        for row in pairs
        if most_ratio is not None and float(row["ratio_p50"]) > most_ratio
    ]
    if most_growth is not None and len(pairs) > 1:
        growth = float(pairs[-1]["p50_ms"]) / float(pairs[0]["p50_ms"])
        if growth > most_growth:
            problems.append(
                f"{pairs[0]['nodes']} to {pairs[-1]['nodes']} nodes: {growth:.1f} times, at most {most_growth}"
            )
    return problems


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every size and show the table; return 1 where a limit that was given is passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--mode", choices=("closed", "paced"), nargs="+", default=["closed"])
    parser.add_argument("--load", choices=("quiet", "busy"), nargs="+", default=["quiet"])
    parser.add_argument("--helper", choices=("on", "off"), nargs="+", default=["on"])
    parser.add_argument("--most-ratio", type=float)
    parser.add_argument("--most-growth", type=float)
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    for nodes in options.nodes:
        for helper in options.helper:
            print(f"{nodes} nodes of {DEVICES} devices, helper {helper} ...", file=sys.stderr, flush=True)
            rows += measure(nodes, options.pairs, options.mode, options.load, helper)
    print(f"written to {show('latency', rows)}")
    problems = too_slow(rows, options.most_ratio, options.most_growth)
    for problem in problems:
        print(f"too slow: {problem}", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
