"""What goes on while decisions are measured: reports that change values, and pods that change.

    with pressure(cluster, reports_per_s=1000, pod_events_per_s=200):
        ...

Reports come from a process of their own (``python -m benchmarks.pressure PORT RATE SEQUENCE``, one report a line on
its standard input, an empty line, then silence until it shall end), so that they take no time from the client that
measures.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import msgspec

from benchmarks.cluster import NAMESPACE, BenchCluster
from benchmarks.report_clients import AgentConnection
from node_agent.report import Report

_CONNECTIONS = 32
_TICK_S = 0.01
_MERGE = "application/merge-patch+json"
_PODS_OF_A_NODE = 4


@contextlib.contextmanager
def pressure(cluster: BenchCluster, reports_per_s: float, pod_events_per_s: float) -> Iterator[None]:
    """Send reports and change pods at these rates until the block ends."""
    sequence = time.monotonic_ns() // 1000
    command = [sys.executable, "-m", "benchmarks.pressure", str(cluster.port), str(reports_per_s), str(sequence)]
    sender = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert sender.stdin is not None
    end = threading.Event()
    changes = threading.Thread(target=_change_pods, args=(cluster, pod_events_per_s, end), daemon=True)
    try:
        draw = random.Random(5)
        for index in range(len(cluster.names)):
            sender.stdin.write(cluster.report(index, 1, draw) + b"\n")
        sender.stdin.write(b"\n")
        sender.stdin.flush()
        changes.start()
        yield
    finally:
        end.set()
        sender.stdin.close()
        sender.wait(30)
        changes.join()


def _change_pods(cluster: BenchCluster, rate: float, end: threading.Event) -> None:
    started, done = time.monotonic(), 0
    while not end.wait(_TICK_S):
        while done < (time.monotonic() - started) * rate:
            done += 1
            name = f"p-{done % len(cluster.names)}-{done % _PODS_OF_A_NODE}"
            patch = {"metadata": {"labels": {"revision": str(done)}}}
            cluster.api.patch("pods", NAMESPACE, name, patch, _MERGE)


async def _send(port: int, rate: float, sequence: int, reports: list[Report]) -> None:
    loop, draw = asyncio.get_running_loop(), random.Random(6)
    opened = [await loop.create_connection(lambda: AgentConnection(""), "127.0.0.1", port) for _ in range(_CONNECTIONS)]
    connections = [connection for _, connection in opened]
    ended = loop.run_in_executor(None, sys.stdin.buffer.read)
    started, sent = time.monotonic(), 0
    answers: set[asyncio.Future[int]] = set()
    known: dict[int, int | None] = {}
    while not ended.done():
        due = int((time.monotonic() - started) * rate) - sent
        for connection in [each for each in connections if each.is_idle][: max(due, 0)]:
            node = sent % len(reports)
            answer = connection.post(_next(reports[node], sequence + sent, draw, known.get(node)))
            answers.add(answer)
            answer.add_done_callback(answers.discard)
            answer.add_done_callback(lambda _, at=node, by=connection: known.update({at: by.bookings_generation}))
            sent += 1
        await asyncio.sleep(_TICK_S / 4 if due > len(connections) else _TICK_S)
    reached = sent / (time.monotonic() - started)
    await asyncio.gather(*answers, return_exceptions=True)
    for connection in connections:
        connection.close()
    print(f"{reached:.0f} reports/s of {rate:.0f}", file=sys.stderr, flush=True)


def _next(report: Report, sequence: int, draw: random.Random, bookings_generation: int | None) -> bytes:
    devices = tuple(msgspec.structs.replace(device, utilisation=round(draw.random(), 2)) for device in report.devices)
    moved = {"sequence": sequence, "devices": devices, "bookings_generation": bookings_generation}
    return msgspec.json.encode(msgspec.structs.replace(report, **moved))


def main() -> None:
    """Send what comes on standard input until that ends."""
    port, rate, sequence = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    reports = []
    while line := sys.stdin.buffer.readline().strip():
        reports.append(msgspec.json.decode(line, type=Report))
    asyncio.run(_send(port, rate, sequence, reports))


if __name__ == "__main__":
    main()
