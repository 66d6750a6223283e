"""What reports cost the extender: many agents on kept TLS connections, each with a token of its own that is checked.

    python -m benchmarks.reports [--agents 5000] [--rate 1000] [--seconds 20]

The extender runs as a replica does in a cluster (certificates, TokenReview, its own listener for agents), on the
simulated API server. Measured is the CPU time of its process over the window; the agents send what real ones do at a
heartbeat: the same hardware, another load, the bookings that they know. ``cpu_percent`` is scaled to the rate that was
asked for, should the machine not have reached it. Renewals of TokenReview fall outside the window: ``first_report_us``
holds one, with handshake and first report, and ``cpu_percent_with_renewals`` adds one of those for each agent and five
minutes. ``load_average`` is the machine's: where others compete for its cores and caches, a report costs a multiple of
what it costs alone.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import os
import random
import ssl
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import trustme
import uvloop

from benchmarks.cluster import BenchCluster, free_port, node_object, wait_until_ready
from benchmarks.report_clients import AgentConnection, Sent, answered, open_all
from benchmarks.results import RESULTS, show
from extender.identity import AUDIENCE, NODE_CLAIM, IdentityLimits, service_account_user
from extender.kubeapi import TokenIdentity
from extender.simulation.apiserver import SimulatedApiServer
from extender.simulation.apiserving import ServedApiServer
from extender.simulation.leash import Child

LIMIT_PERCENT = 20.0
_ACCOUNT = service_account_user("tangram-agents", "tangram-agent")
_TICK_S = 0.02
_TOKEN_BYTES = 900


@dataclass(frozen=True, slots=True)
class Load:
    """How many agents send how many reports a second in all, and for how long."""

    agents: int
    rate: float
    seconds: float


@dataclass(slots=True)
class Door:
    """A running replica: the agents' port, whom they trust, their tokens in order of nodes."""

    cluster: BenchCluster
    agents_port: int
    context: ssl.SSLContext
    tokens: list[str]


def main() -> int:
    """Measure, print, write; return 1 where the limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--agents", type=int, default=5000)
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    load = Load(options.agents, options.rate, options.seconds)
    with replica(load.agents) as door, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        row = runner.run(measure(door, load))
    show("reports", [{"measure": name, "value": value} for name, value in row.items()])
    (RESULTS / "reports.json").write_text(json.dumps(row, indent=2) + "\n")
    return int(float(row["cpu_percent"]) > LIMIT_PERCENT or row["refused"] != 0)


async def measure(door: Door, load: Load) -> dict[str, float]:
    """Connect, let every agent report once, then measure the window."""
    draw = random.Random(1)
    before_s = door.cluster.cpu_seconds()
    connections = await open_all(door.agents_port, door.tokens, door.context)
    first = Sent()
    for start in range(0, len(connections), 64):
        part = connections[start : start + 64]
        bodies = [door.cluster.report(start + number, 1, draw) for number in range(len(part))]
        await answered([each.post(body) for each, body in zip(part, bodies, strict=True)], first)
    began_s, began = door.cluster.cpu_seconds(), time.monotonic()
    sent = await send_steadily(door.cluster, connections, load, draw)
    elapsed_s, used_s = time.monotonic() - began, door.cluster.cpu_seconds() - began_s
    for connection in connections:
        connection.close()
    return _row(load, first, sent, elapsed_s, used_s, (began_s - before_s) / load.agents, door)


async def send_steadily(
    cluster: BenchCluster, connections: list[AgentConnection], load: Load, draw: random.Random
) -> Sent:
    """Send at the rate for the time; an agent that still waits for an answer is left out of that turn."""
    sent, pending, number = Sent(), [], 0
    start = time.monotonic()
    while (passed_s := time.monotonic() - start) < load.seconds:
        while number < passed_s * load.rate:
            index, round_number = number % len(connections), number // len(connections)
            number += 1
            agent = connections[index]
            if agent.is_idle:
                body = cluster.report(index, 2 + round_number, draw, agent.bookings_generation)
                pending.append(agent.post(body))
            else:
                sent.skipped += 1
            if number % 20 == 0:
                await asyncio.sleep(0)
        await asyncio.sleep(_TICK_S)
    await answered(pending, sent)
    return sent


def _row(
    load: Load, first: Sent, sent: Sent, elapsed_s: float, used_s: float, first_s: float, door: Door
) -> dict[str, float]:
    reports = sent.statuses.get(200, 0)
    each_s = used_s / max(reports, 1)
    renewals = load.agents / IdentityLimits().accepted_s
    return {
        "agents": load.agents,
        "tls": True,
        "identity": True,
        "reports_per_s": round(reports / elapsed_s, 1),
        "us_per_report": round(each_s * 1e6, 1),
        "cpu_percent": round(each_s * load.rate * 100, 1),
        "cpu_percent_with_renewals": round((each_s * load.rate + first_s * renewals) * 100, 1),
        "first_report_us": round(first_s * 1e6, 1),
        "refused": sum(count for each in (first, sent) for status, count in each.statuses.items() if status != 200),
        "skipped": sent.skipped,
        "resident_mib": round(door.cluster.resident_mib()),
        "load_average": round(os.getloadavg()[0], 1),
        "limit_percent": LIMIT_PERCENT,
    }


@contextlib.contextmanager
def replica(agents: int) -> Iterator[Door]:
    """Bring up a replica that knows a node and a token for every agent; everything ends with the block."""
    names = [f"node-{number:05d}" for number in range(agents)]
    api = SimulatedApiServer()
    tokens = [_token(name) for name in names]
    for name, token in zip(names, tokens, strict=True):
        api.create("nodes", "", node_object(name))
        api.admit_token(token, TokenIdentity(_ACCOUNT, "1", (), (AUDIENCE,), {NODE_CLAIM: (name,)}))
    with tempfile.TemporaryDirectory() as directory, ServedApiServer(api) as served:
        context = _certificates(Path(directory))
        ports = {name: free_port() for name in ("SCHEDULER", "WEBHOOKS", "AGENTS", "PEOPLE")}
        child = Child("extender", _environment(served.url, Path(directory), ports))
        try:
            wait_until_ready(ports["PEOPLE"])
            yield Door(BenchCluster(ports["PEOPLE"], names, api, child.process_id), ports["AGENTS"], context, tokens)
        finally:
            child.stop()


def _certificates(root: Path) -> ssl.SSLContext:
    """Lay out the certificates as mounted Secrets and return what agents trust."""
    authority = trustme.CA()
    for audience in ("agents", "webhooks", "scheduler"):
        leaf, place = authority.issue_cert("tangram-extender"), root / audience
        place.mkdir()
        leaf.cert_chain_pems[0].write_to_path(str(place / "tls.crt"))
        leaf.private_key_pem.write_to_path(str(place / "tls.key"))
        authority.cert_pem.write_to_path(str(place / "ca.crt"))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def _environment(url: str, certificates: Path, ports: dict[str, int]) -> dict[str, str]:
    deployment = {
        "MODE": "paired",
        "HOST": "127.0.0.1",
        "CERTIFICATES": "mounted",
        "CERTIFICATES_DIRECTORY": str(certificates),
        "PEOPLE_TLS": "false",
        **{f"{name}_PORT": str(port) for name, port in ports.items()},
    }
    return {
        "TANGRAM_API_SERVER": url,
        "TANGRAM_LOG_LEVEL": "error",
        "TANGRAM_STALE_AFTER_S": "3600",
        "TANGRAM_REPORTS_WAIT_S": "0",
        **{f"TANGRAM_DEPLOYMENT__{name}": value for name, value in deployment.items()},
    }


def _token(node: str) -> str:
    """Return a token of the size and shape of a projected one; the simulated API server knows whose it is."""
    claims = {"aud": [AUDIENCE], "exp": time.time() + 3600, "sub": _ACCOUNT, "node": node, "pad": "x" * _TOKEN_BYTES}
    parts = (b'{"alg":"RS256"}', json.dumps(claims).encode(), node.encode() * 20)
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


if __name__ == "__main__":
    raise SystemExit(main())
