"""The histories of all replicas, merged: each replica keeps what it answered itself, so the others are asked.

Peers are the addresses behind a headless Service. Each is asked at the same time, for a short while; what one of them
does not answer is named in the result, because a gap that nobody mentions reads like "nothing happened".
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol
from urllib.parse import quote, urlsplit

import msgspec
import urllib3

from extender.history import Kept, PodHistory
from extender.history_file import Attempt, Explanation

_TIMEOUT_S = 2.0
_MOST_PEERS = 16
_MOST_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True)
class PeerState:
    """Whether one replica answered; ``problem`` says in words why not."""

    address: str
    problem: str = ""


Resolve = Callable[[str, int], Awaitable[list[str]]]
"""Returns the addresses behind a host's name; raises OSError."""


class AskPeers(Protocol):
    """Asks every other replica what it keeps of the pods of one name."""

    async def __call__(
        self, namespace: str, name: str, headers: Mapping[str, str]
    ) -> tuple[list[PodHistory], list[PeerState]]:
        """Return what was answered, and who did not. Raises nothing."""


async def no_peers(namespace: str, name: str, headers: Mapping[str, str]) -> tuple[list[PodHistory], list[PeerState]]:
    """Answer for a replica that is alone."""
    del namespace, name, headers
    return [], []


class Peers:
    """Peers behind ``url`` (``https://tangram-peers.tangram-system.svc:8270``), own address included.

    ``ca_file`` holds what their certificates are checked against; they carry the Service's name.
    """

    def __init__(self, url: str, ca_file: str = "", resolve: Resolve | None = None) -> None:
        parts = urlsplit(url)
        self._scheme, self._host = parts.scheme, parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._ca_file = ca_file
        self._resolve = resolve or resolved
        self._threads = ThreadPoolExecutor(_MOST_PEERS, thread_name_prefix="peers")

    async def __call__(
        self, namespace: str, name: str, headers: Mapping[str, str]
    ) -> tuple[list[PodHistory], list[PeerState]]:
        """Ask every address; see ``AskPeers``."""
        loop = asyncio.get_running_loop()
        try:
            addresses = (await self._resolve(self._host, self._port))[:_MOST_PEERS]
        except OSError as error:
            return [], [PeerState(self._host, f"no addresses: {error}")]
        path = f"/v1/history/{quote(namespace, safe='')}/{quote(name, safe='')}"
        asked = (loop.run_in_executor(self._threads, self._ask, each, path, dict(headers)) for each in addresses)
        answers = await asyncio.gather(*asked)
        histories = [answer for answer in answers if isinstance(answer, PodHistory)]
        states = [
            PeerState(address, "" if isinstance(answer, PodHistory) else answer)
            for address, answer in zip(addresses, answers, strict=True)
        ]
        return histories, states

    def _ask(self, address: str, path: str, headers: dict[str, str]) -> PodHistory | str:
        """Return one peer's answer, or in words why there is none."""
        try:
            with self._pool(address) as pool:
                answer = pool.request("GET", path, headers=headers, preload_content=False, redirect=False)
                body = answer.read(_MOST_BYTES + 1)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            return f"no answer: {error}"
        if answer.status != 200:
            return f"HTTP {answer.status}"
        try:
            return msgspec.json.decode(body, type=PodHistory)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return f"not understood: {error}"

    def _pool(self, address: str) -> urllib3.HTTPConnectionPool:
        timeout = urllib3.Timeout(_TIMEOUT_S)
        if self._scheme == "http":
            return urllib3.HTTPConnectionPool(address, self._port, timeout=timeout, retries=False)
        return urllib3.HTTPSConnectionPool(
            address,
            self._port,
            timeout=timeout,
            retries=False,
            ca_certs=self._ca_file or None,
            server_hostname=self._host,
            assert_hostname=self._host,
        )


async def resolved(host: str, port: int) -> list[str]:
    """Return the addresses behind a name, sorted; OSError where there are none."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return sorted({str(entry[4][0]) for entry in found})


def merged(histories: Iterable[PodHistory], limit: int) -> tuple[tuple[Attempt, ...], tuple[Explanation, ...]]:
    """Return the attempts and explanations of all replicas, newest first; what two replicas sent alike counts once."""
    attempts: dict[tuple[object, ...], Attempt] = {}
    explanations: dict[tuple[object, ...], Explanation] = {}
    for history in histories:
        for attempt in history.attempts:
            named = attempt if attempt.replica else replace(attempt, replica=history.kept.replica)
            attempts[named.replica, named.pod_uid, named.verb, named.first_at, named.last_at] = named
        for each in history.explanations:
            explanations[each.replica, each.pod_uid, each.at] = each
    newest = sorted(attempts.values(), key=lambda each: (-each.last_at, each.replica, each.verb))
    latest = sorted(explanations.values(), key=lambda each: (-each.at, each.replica))
    return tuple(newest[:limit]), tuple(latest)


def kept_by(histories: Iterable[PodHistory]) -> tuple[Kept, ...]:
    """Return what each replica says of its keeping, one entry a replica."""
    return tuple({history.kept.replica: history.kept for history in histories}.values())
