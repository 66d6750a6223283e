"""Hundreds or thousands of simulated agents in one process, over few connections: for ``make run`` and benchmarks.

Each node has a reader, a health tracker and a pace of its own, exactly as a real agent; what they share is the event
loop and a pool of keep-alive connections. The newest report of a node is built when it is sent, so nothing queues::

    fleet = SimulatedFleet(descriptions, "http://127.0.0.1:8080")
    await fleet.start()
    fleet.set_utilisation("gpu-1", fleet.uuids("gpu-1")[0], 0.9)
    await fleet.stop()
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from node_agent.endpoint import Endpoint
from node_agent.health import HealthTimes
from node_agent.pace import PaceTimes
from node_agent.report import Answer
from node_agent.simulated import is_static
from node_agent.simulated_description import Description, Fault
from node_agent.simulated_node import SimulatedNode

MAX_ANSWER_BYTES = 4 * 1024 * 1024
_TIMEOUT_S = 10.0

logger = logging.getLogger(__name__)

Token = str | Callable[[str], str] | None
"""One token for all nodes, or a function from a node's name to its token."""


@dataclass(frozen=True, slots=True)
class FleetTimes:
    """Seconds between sweeps of nodes that change by themselves, and the pace of pushes."""

    sweep_s: float = 2.0
    pace: PaceTimes = field(default_factory=PaceTimes)
    health: HealthTimes = field(default_factory=HealthTimes)


class SimulatedFleet:
    """Runs the described nodes against one or more extenders."""

    def __init__(
        self,
        descriptions: Iterable[Description],
        url: str | Sequence[str],
        token: Token = None,
        *,
        connections: int = 8,
        times: FleetTimes | None = None,
        seed: int = 0,
    ) -> None:
        self.outcomes: Counter[str] = Counter()
        self._endpoints = [Endpoint.parse(each) for each in ([url] if isinstance(url, str) else url)]
        if any(endpoint.is_tls for endpoint in self._endpoints):
            raise ValueError("url: simulated fleets speak plain http only")
        self._token = token
        self._connections = connections
        self._times = times or FleetTimes()
        rng = random.Random(seed)  # noqa: S311 - jitter, not secrets
        self._nodes = {
            each.node: SimulatedNode(each, len(self._endpoints), self._times.pace, self._times.health, rng.random)
            for each in descriptions
        }
        self._due: list[tuple[float, str]] = []
        self._ready: asyncio.Queue[str] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._woken = asyncio.Event()

    async def start(self) -> None:
        """Begin sweeping and pushing; every node's first push comes within the pace's first span."""
        for name, node in self._nodes.items():
            self._plan_turn(name, node.due_s())
        self._tasks = [asyncio.create_task(self._plan(), name="fleet-plan")]
        self._tasks += [asyncio.create_task(self._serve(), name=f"fleet-{each}") for each in range(self._connections)]

    async def stop(self) -> None:
        """End all pushing and close the connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def node_names(self) -> list[str]:
        """Return the names of all nodes."""
        return list(self._nodes)

    def uuids(self, node: str) -> list[str]:
        """Return the UUIDs of a node's schedulable devices (MIG instances instead of their split parent)."""
        return self._nodes[node].uuids()

    def set_utilisation(self, node: str, uuid: str, value: float | None) -> None:
        """Make a device report this load (0..1) from now on; None gives it back to its description."""
        self._nodes[node].set_utilisation(uuid, value)
        self._wake(node)

    def set_foreign(self, node: str, uuid: str, memory_mib: int | None) -> None:
        """Let a process of nobody's pod hold this much memory; None gives it back to the description."""
        self._nodes[node].set_foreign(uuid, memory_mib)
        self._wake(node)

    def plant_fault(self, node: str, fault: Fault) -> None:
        """Add a fault; its times are counted from now."""
        self._nodes[node].plant_fault(fault)
        self._wake(node)

    def silence(self, node: str) -> None:
        """Stop all reports of a node, as if its agent were gone."""
        self._nodes[node].is_silent = True

    def restore(self, node: str) -> None:
        """Let a silenced node speak again, at once."""
        self._nodes[node].is_silent = False
        self._wake(node)

    def _wake(self, name: str) -> None:
        self._plan_turn(name, self._nodes[name].next_possible_s(time.monotonic()))

    def _plan_turn(self, name: str, due_s: float) -> None:
        """Make this the node's next turn; an entry made before is void and skipped when it comes up."""
        self._nodes[name].planned_s = due_s
        heapq.heappush(self._due, (due_s, name))
        self._woken.set()

    async def _plan(self) -> None:
        """Move nodes whose time has come into the hands of the connections."""
        while True:
            now_s = time.monotonic()
            while self._due and self._due[0][0] <= now_s:
                due_s, name = heapq.heappop(self._due)
                if self._nodes[name].planned_s == due_s:
                    self._nodes[name].planned_s = None
                    self._ready.put_nowait(name)
            self._woken.clear()
            wait_s = self._due[0][0] - now_s if self._due else math.inf
            # Not wait_for: before Python 3.12 it can swallow a cancellation that meets the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(wait_s, 1.0)):
                    await self._woken.wait()

    async def _serve(self) -> None:
        """Own one connection to each endpoint; sweep and push one node after the other."""
        wires = [_Wire(endpoint) for endpoint in self._endpoints]
        try:
            while True:
                name = await self._ready.get()
                node = self._nodes[name]
                if not node.is_silent:
                    await self._turn(node, wires)
                if node.planned_s is None:
                    self._plan_turn(name, self._next_s(node))
        finally:
            for wire in wires:
                wire.close()

    def _next_s(self, node: SimulatedNode) -> float:
        now_s = time.monotonic()
        if node.is_silent:
            return math.inf
        moves = not is_static(node.description) or node.is_restless()
        return max(now_s + 0.01, min(node.due_s(), now_s + self._times.sweep_s if moves else math.inf))

    async def _turn(self, node: SimulatedNode, wires: Sequence[_Wire]) -> None:
        report = node.sweep()
        for number, wire in enumerate(wires):
            stream = node.streams[number]
            now_s = time.monotonic()
            if stream.pace.due_s(is_urgent=stream.is_news(report)) > now_s:
                continue
            try:
                body = msgspec.json.encode(replace(report, bookings_generation=stream.generation))
                async with asyncio.timeout(_TIMEOUT_S):
                    answer = await wire.post(body, self._token_of(node.description.node))
            except (OSError, ValueError, TimeoutError, EOFError) as problem:
                wire.close()
                stream.failed(time.monotonic())
                self.outcomes[type(problem).__name__] += 1
            else:
                node.take_answer(number, report, answer, time.monotonic())
                self.outcomes["ok"] += 1

    def _token_of(self, node: str) -> str | None:
        return self._token(node) if callable(self._token) else self._token


class _Wire:
    """One keep-alive HTTP/1.1 connection, spoken by hand: thousands of agents share a handful."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, body: bytes, token: str | None) -> Answer:
        """Send a report and decode the answer; raise OSError, EOFError or ValueError when that does not work."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._endpoint.host, self._endpoint.port)
        reader, writer = self._streams
        bearer = f"Authorization: Bearer {token}\r\n" if token else ""
        head = (
            f"POST {self._endpoint.path} HTTP/1.1\r\nHost: {self._endpoint.host}:{self._endpoint.port}\r\n"
            f"Content-Type: application/json\r\n{bearer}Content-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode("ascii") + body)
        await writer.drain()
        status, content = await _read_response(reader)
        if status != 200:
            raise ValueError(f"answered {status}: {content[:300].decode('utf-8', 'replace')}")
        return msgspec.json.decode(content, type=Answer)

    def close(self) -> None:
        """Drop the connection; the next push opens another."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def _read_response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    if "content-length" not in headers:
        raise ValueError("answer without Content-Length")
    length = int(headers["content-length"])
    if length > MAX_ANSWER_BYTES:
        raise ValueError(f"answer of {length} bytes, at most {MAX_ANSWER_BYTES}")
    return int(lines[0].split(" ", 2)[1]), await reader.readexactly(length)
