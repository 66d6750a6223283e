"""``make bench NAME=scrape``: what a scrape of a large cluster costs, and what decisions notice of it.

The CPU of one scrape is that of the extender's process over a number of scrapes, less what it uses in as much time
without them; before each the state changes, so that nothing is served from memory. Decisions are made in turns of a few
seconds, undisturbed and while the page is scraped every five seconds; the ratio is that of the medians in one run.
"""

from __future__ import annotations

import argparse
import http.client
import random
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.client import KeepAliveClient
from benchmarks.cluster import BenchCluster, bench_cluster
from benchmarks.latency import WARM_UP, Scheduler, Times, floor_server
from benchmarks.results import Row, quantile, show

CPU_LIMIT_MS = 300.0
RATIO_LIMIT = 1.2
EVERY_S = 5.0
_SCRAPES = 10
_APART_S = 1.2
"""More than a page is served again for."""


def scrape(port: int) -> bytes:
    """Return the page."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/metrics")
    page = connection.getresponse().read()
    connection.close()
    return page


def scrape_cpu_ms(cluster: BenchCluster) -> float:
    """Return the extender's CPU time for one scrape."""
    with KeepAliveClient(cluster.port) as client:
        draw = random.Random(3)
        used = [_used(cluster, client, draw, turn, is_scraped=bool(turn % 2)) for turn in range(2 * _SCRAPES)]
    return (sum(used[1::2]) - sum(used[::2])) / _SCRAPES * 1000


def _used(cluster: BenchCluster, client: KeepAliveClient, draw: random.Random, turn: int, *, is_scraped: bool) -> float:
    """Return the CPU seconds of one turn: a report, perhaps a scrape, and a pause."""
    before = cluster.cpu_seconds()
    client.post("/v1/reports", cluster.report(turn, 1000 + turn, draw))
    if is_scraped:
        scrape(cluster.port)
    time.sleep(_APART_S)
    return cluster.cpu_seconds() - before


@contextmanager
def _scraped(port: int) -> Iterator[None]:
    """Scrape now and every five seconds until the block ends."""
    stopped = threading.Event()

    def turns() -> None:
        scrape(port)
        while not stopped.wait(EVERY_S):
            scrape(port)

    thread = threading.Thread(target=turns)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def _decide_for(scheduler: Scheduler, seconds: float) -> list[float]:
    """Return how long filter and prioritize took together, for each pod that was placed in this time."""
    scheduler.times = {verb: Times() for verb in scheduler.times}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        scheduler.decide()
    return scheduler.times["pair"].calls


def measure(nodes: int, turns: int, turn_s: float) -> Row:
    """Return the row of a cluster of ``nodes``."""
    with bench_cluster(nodes) as cluster, floor_server() as floor_port:
        scheduler = Scheduler(cluster, floor_port)
        for _ in range(WARM_UP):
            scheduler.decide()
        page = scrape(cluster.port)
        cpu_ms = scrape_cpu_ms(cluster)
        undisturbed: list[float] = []
        disturbed: list[float] = []
        for _ in range(turns):
            undisturbed += _decide_for(scheduler, turn_s)
            with _scraped(cluster.port):
                disturbed += _decide_for(scheduler, turn_s)
    quiet, scraped = quantile(undisturbed, 0.5), quantile(disturbed, 0.5)
    return {
        "nodes": nodes,
        "lines": page.count(b"\n"),
        "page_mib": round(len(page) / 2**20, 2),
        "scrape_cpu_ms": round(cpu_ms, 1),
        "quiet_p50_ms": round(quiet * 1000, 3),
        "scraped_p50_ms": round(scraped * 1000, 3),
        "ratio_p50": round(scraped / quiet, 3),
        "quiet_p99_ms": round(quantile(undisturbed, 0.99) * 1000, 3),
        "scraped_p99_ms": round(quantile(disturbed, 0.99) * 1000, 3),
        "pairs": len(undisturbed) + len(disturbed),
        "holds": cpu_ms < CPU_LIMIT_MS and scraped <= RATIO_LIMIT * quiet,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, show the row, and return 1 where a limit does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--turn-seconds", type=float, default=12.0)
    options = parser.parse_args(arguments)
    row = measure(options.nodes, options.turns, options.turn_seconds)
    print(f"written to {show('scrape', [row])}")
    return 0 if row["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
