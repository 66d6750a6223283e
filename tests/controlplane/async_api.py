"""The hollow kubelets' connection to the API server: patient writes, and list-and-watch that never ends.

As a kubelet does, it goes on through an API server that restarts, a watch that is cut, and an expired resource version.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine
from types import TracebackType
from typing import Self

import httpx2

from tests.controlplane.access import Endpoint
from tests.controlplane.api import Json, PatchKind, trust

_TIMEOUT_S = 10.0
_CONNECTIONS = 32
_PAUSE_S = 0.2
_PATIENCE = 300  # pauses: a minute in all
_WATCH_S = 240
_CONFLICTS = 4


class NotThere(RuntimeError):
    """The object does not exist, or is not the one with the expected UID."""


class _Expired(RuntimeError):
    """The watch cannot go on from this resource version: list again."""


class AsyncApi:
    """One user's connections, used from one event loop, and closed at the end of its context."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._client = httpx2.AsyncClient(
            base_url=endpoint.url,
            headers={"Authorization": f"Bearer {endpoint.token}"},
            verify=trust(endpoint),
            timeout=httpx2.Timeout(_TIMEOUT_S, pool=None),  # a hundred kubelets at once wait for their turn
            limits=httpx2.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS),
            trust_env=False,
        )
        self._under_way: set[asyncio.Future[httpx2.Response]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=_TIMEOUT_S)
        await self._client.aclose()

    async def create_or_take(self, collection: str, manifest: Json) -> None:
        """Create an object; one that exists is left as it is."""
        answer = await self._send("POST", collection, manifest)
        if answer.status_code != httpx2.codes.CONFLICT:
            answer.raise_for_status()

    async def patch(self, path: str, change: Json, *, strategic: bool = False) -> Json:
        """Change an object, by a merge patch unless `strategic`. Raises NotThere when it is gone."""
        kind = PatchKind.STRATEGIC if strategic else PatchKind.MERGE
        for _ in range(_CONFLICTS):  # another UID is a conflict too, and stays one
            answer = await self._send("PATCH", path, change, content_type=kind.value)
            if answer.status_code == httpx2.codes.NOT_FOUND:
                break
            if answer.status_code != httpx2.codes.CONFLICT:
                answer.raise_for_status()
                changed: Json = answer.json()
                return changed
        raise NotThere(path)

    async def delete(self, path: str, *, uid: str | None = None) -> None:
        """Delete an object at once, only the one with `uid` when given; one that is gone already is no error."""
        options: Json = {"gracePeriodSeconds": 0}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        answer = await self._send("DELETE", path, options)
        if answer.status_code not in (httpx2.codes.NOT_FOUND, httpx2.codes.CONFLICT):
            answer.raise_for_status()

    async def follow(self, collection: str, *, field_selector: str = "") -> AsyncGenerator[tuple[str, Json], None]:
        """Yield (`ADDED` | `MODIFIED` | `DELETED`, object) for ever; after a gap, objects may be told of again.

        An object that went during a gap is told of as DELETED, in its last known form.
        """
        known: dict[str, Json] = {}
        while True:
            listing = (await self._send("GET", collection, query={"fieldSelector": field_selector})).json()
            present = {item["metadata"]["uid"]: item for item in listing["items"]}
            for uid in known.keys() - present.keys():
                yield "DELETED", known[uid]
            known = present
            for item in present.values():
                yield "ADDED", item
            version = listing["metadata"]["resourceVersion"]
            try:
                async for kind, item in self._watch_on(collection, field_selector, version):
                    if kind == "DELETED":
                        known.pop(item["metadata"]["uid"], None)
                    else:
                        known[item["metadata"]["uid"]] = item
                    yield kind, item
            except _Expired:
                continue

    async def _watch_on(
        self, collection: str, field_selector: str, version: str
    ) -> AsyncGenerator[tuple[str, Json], None]:
        """Watch from one resource version over any number of cut streams, until it has expired."""
        while True:
            query = {
                "watch": "1",
                "allowWatchBookmarks": "true",
                "timeoutSeconds": str(_WATCH_S),
                "resourceVersion": version,
                "fieldSelector": field_selector,
            }
            try:
                async with self._client.stream(
                    "GET", collection, params=query, timeout=_WATCH_S + _TIMEOUT_S
                ) as stream:
                    _check_watch(stream.status_code)
                    async for line in stream.aiter_lines():
                        event = json.loads(line)
                        item = event["object"]
                        _check_watch(item.get("code") if event["type"] == "ERROR" else httpx2.codes.OK)
                        version = item["metadata"]["resourceVersion"]
                        if event["type"] != "BOOKMARK":
                            yield event["type"], item
            except (httpx2.TransportError, json.JSONDecodeError):
                await asyncio.sleep(_PAUSE_S)

    async def _send(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        content_type: str = "application/json",
        query: dict[str, str] | None = None,
    ) -> httpx2.Response:
        headers = {} if body is None else {"Content-Type": content_type}
        for _ in range(_PATIENCE):
            try:
                request = self._client.request(method, path, json=body, headers=headers, params=query or {})
                answer = await self._to_its_end(request)
            except httpx2.TransportError:
                pass
            else:
                if answer.status_code != httpx2.codes.TOO_MANY_REQUESTS and not answer.is_server_error:
                    return answer
            await asyncio.sleep(_PAUSE_S)
        message = f"{method} {path}: no answer from the API server within {_PATIENCE * _PAUSE_S:.0f} s"
        raise TimeoutError(message)

    async def _to_its_end(self, request: Coroutine[None, None, httpx2.Response]) -> httpx2.Response:
        """Let a request end by itself when its sender is cancelled: one that is connecting would leak its socket."""
        sending = asyncio.ensure_future(request)
        self._under_way.add(sending)
        sending.add_done_callback(self._under_way.discard)
        return await asyncio.shield(sending)


def _check_watch(status: int | None) -> None:
    if status == httpx2.codes.OK:
        return
    if status == httpx2.codes.GONE:
        raise _Expired
    message = f"the watch was answered with {status}"
    raise httpx2.RemoteProtocolError(message)
