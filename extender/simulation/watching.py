"""One watch of the simulated API server: reads the shared history at its own pace, so it holds no queue of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import msgspec

from extender.simulation.apiserver import SimulatedApiServer
from extender.simulation.semantics import ApiRefusal
from extender.simulation.stored import Collection

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_DEFAULT_TIMEOUT_S = 1800
_PACKET_BYTES = 256 * 1024
_ENCODER = msgspec.json.Encoder()


async def watch(
    server: SimulatedApiServer,
    resource: str,
    namespace: str,
    query: Mapping[str, str],
    bookmark_s: float,
    closing: asyncio.Event,
    receive: Receive,
    send: Send,
) -> None:
    """Send events after the query's resourceVersion until its time is over, the caller leaves or the server closes.

    Without a version, or with 0, what exists comes first. One that the history no longer reaches gets a 410 event.
    """
    collection = server.collections[resource]
    version = _wanted_version(query)
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    ending = asyncio.ensure_future(_end(float(query.get("timeoutSeconds") or _DEFAULT_TIMEOUT_S), closing, receive))
    has_bookmarks = query.get("allowWatchBookmarks") in ("true", "1")
    try:
        await _follow(server, collection, namespace, version, bookmark_s if has_bookmarks else None, ending, send)
    finally:
        ending.cancel()
    await send({"type": "http.response.body", "body": b""})


async def _follow(
    server: SimulatedApiServer,
    collection: Collection,
    namespace: str,
    version: int | None,
    bookmark_s: float | None,
    ending: asyncio.Future[None],
    send: Send,
) -> None:
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        loop.call_soon_threadsafe(changed.set)

    with server.lock:
        collection.listen(wake)
    try:
        while not ending.done():
            changed.clear()
            with server.lock:
                is_too_old = version is not None and version < collection.floor
                lines = [] if is_too_old else _news(collection, namespace, version)
                version = server.version
            if is_too_old:
                await _send_lines(send, [_TOO_OLD])
                return
            await _send_lines(send, lines)
            if not await _changed_in_time(changed, ending, bookmark_s) and not ending.done():
                await _send_lines(send, [_bookmark(collection, version)])
    finally:
        with server.lock:
            collection.unlisten(wake)


def _news(collection: Collection, namespace: str, version: int | None) -> list[bytes]:
    if version is not None:
        return list(collection.lines_after(version, namespace))
    return [b'{"type":"ADDED","object":%s}\n' % stored.content for _, stored in collection.snapshot(namespace)]


async def _changed_in_time(changed: asyncio.Event, ending: asyncio.Future[None], bookmark_s: float | None) -> bool:
    """Wait for a change or the end; return False when it is time for a bookmark instead."""
    waiting = asyncio.ensure_future(changed.wait())
    done, _ = await asyncio.wait((waiting, ending), timeout=bookmark_s, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    return bool(done)


async def _end(timeout_s: float, closing: asyncio.Event, receive: Receive) -> None:
    """Return when the watch is over: its time, the server's end, or the caller gone."""
    tasks = [asyncio.ensure_future(closing.wait()), asyncio.ensure_future(receive())]
    try:
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def _send_lines(send: Send, lines: list[bytes]) -> None:
    packet, size = [], 0
    for line in lines:
        packet.append(line)
        size += len(line)
        if size >= _PACKET_BYTES:
            await _send_packet(send, packet)
            packet, size = [], 0
    if packet:
        await _send_packet(send, packet)


async def _send_packet(send: Send, packet: list[bytes]) -> None:
    await send({"type": "http.response.body", "body": b"".join(packet), "more_body": True})


def _wanted_version(query: Mapping[str, str]) -> int | None:
    text = query.get("resourceVersion", "")
    if text in ("", "0"):
        return None
    if not text.isdecimal():
        raise ApiRefusal(400, "BadRequest", f"resourceVersion: found {text!r}, valid is one from a list or a watch")
    return int(text)


def _bookmark(collection: Collection, version: int) -> bytes:
    item = {
        "kind": collection.kind,
        "apiVersion": collection.api_version,
        "metadata": {"resourceVersion": str(version)},
    }
    return _ENCODER.encode({"type": "BOOKMARK", "object": item}) + b"\n"


_TOO_OLD = (
    _ENCODER.encode(
        {
            "type": "ERROR",
            "object": {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Failure",
                "message": "too old resource version",
                "reason": "Expired",
                "code": 410,
            },
        }
    )
    + b"\n"
)
