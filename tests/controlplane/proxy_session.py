"""One client connection of the fault proxy, and its one connection to the API server.

A request that is not a watch runs to its end even when its client has gone: a packet that is under way arrives after
its sender died too, and that is the case which a scheduler's books must stand. A watch ends with its client.
"""

import asyncio
import json
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

import h11

from tests.controlplane.faults import Fault, Kind, Rule

_READ_BYTES = 64 * 1024
_MOST_BODY_BYTES = 16 * 1024 * 1024
_HOLD_POLL_S = 0.01
_LOST = (ConnectionError, ssl.SSLError, h11.RemoteProtocolError, h11.LocalProtocolError)


@dataclass(frozen=True, slots=True)
class Seen:
    """One request that came through: its status is None when the client was given no answer."""

    method: str
    path: str
    query: str
    is_watch: bool
    status: int | None
    fault: Fault | None


class _UpstreamLost(RuntimeError):
    """The API server was not reached, or broke off before its answer."""


RuleFor = Callable[[str, str, bool], Rule | None]
Note = Callable[[Seen], None]


@dataclass(frozen=True, slots=True)
class _Exchange:
    """A whole request as read from the client, and what is to happen to it."""

    head: h11.Request
    body: bytes
    method: str
    path: str
    query: str
    is_watch: bool
    rule: Rule | None

    def outcome(self, status: int | None) -> Seen:
        fault = None if self.rule is None else self.rule.fault
        return Seen(self.method, self.path, self.query, self.is_watch, status, fault)


class _Wire:
    """An HTTP/1.1 connection: h11 for what it says, asyncio streams for how it travels."""

    def __init__(self, role: type[h11.CLIENT] | type[h11.SERVER], streams: "_Streams") -> None:
        self.http = h11.Connection(role)
        self.reader, self.writer = streams

    async def receive(self) -> h11.Event:
        """Return the next part of the message. Raises RemoteProtocolError when the other side breaks off inside it."""
        while not isinstance(event := self.http.next_event(), h11.Event):
            if event is h11.PAUSED:
                message = "a request was sent before the answer to the last one"
                raise h11.RemoteProtocolError(message)
            self.http.receive_data(await self.reader.read(_READ_BYTES))
        return event

    async def send(self, event: h11.Event) -> None:
        data = self.http.send(event)
        if data:
            self.writer.write(data)
            await self.writer.drain()

    async def receive_body(self) -> bytes:
        """Read up to the end of the message. Raises RemoteProtocolError when it is larger than any the API takes."""
        parts, size = [], 0
        while isinstance(event := await self.receive(), h11.Data):
            parts.append(bytes(event.data))
            size += len(event.data)
            if size > _MOST_BODY_BYTES:
                message = f"body over {_MOST_BODY_BYTES} bytes"
                raise h11.RemoteProtocolError(message)
        return b"".join(parts)

    def is_reusable(self) -> bool:
        done = self.http.our_state is h11.DONE and self.http.their_state is h11.DONE
        return done and not self.reader.at_eof()


_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Session:
    """Serves the requests of one client connection, one after the other."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        upstream_url: str,
        trust: ssl.SSLContext,
        rule_for: RuleFor,
        note: Note,
    ) -> None:
        self.is_watching = False
        self._client = _Wire(h11.SERVER, (reader, writer))
        self._upstream: _Wire | None = None
        self._upstream_url = upstream_url
        self._trust = trust
        self._rule_for = rule_for
        self._note = note

    async def run(self) -> None:
        """Serve until either side closes the connection or a fault does."""
        with suppress(*_LOST):
            while (exchange := await self._read_exchange()) is not None:
                if not await self._serve(exchange) or not self._client.is_reusable():
                    return
                self._client.http.start_next_cycle()

    def abort(self) -> None:
        """Close both connections at once, without a goodbye."""
        self._client.writer.transport.abort()
        if self._upstream is not None:
            self._upstream.writer.transport.abort()

    async def _read_exchange(self) -> _Exchange | None:
        head = await self._client.receive()
        if not isinstance(head, h11.Request):
            return None
        body = await self._client.receive_body()
        target = urlsplit(head.target.decode())
        method, is_watch = head.method.decode(), parse_qs(target.query).get("watch", [""])[0] in ("1", "true")
        rule = self._rule_for(method, target.path, is_watch)
        return _Exchange(head, body, method, target.path, target.query, is_watch, rule)

    async def _serve(self, exchange: _Exchange) -> bool:
        """Do to one request what its rule says; return whether the client's connection stays."""
        fault = Fault(Kind.NONE) if exchange.rule is None else exchange.rule.fault
        match fault.kind:
            case Kind.REFUSE:
                return self._leave_unanswered(exchange)
            case Kind.STATUS:
                return await self._answer(exchange, fault.status, _status_body(fault.status))
            case Kind.GONE:
                event = {"type": "ERROR", "object": json.loads(_status_body(410))}
                return await self._answer(exchange, 200, json.dumps(event).encode() + b"\n")
        try:
            answer = await self._ask(exchange, fault.kind)
        except _UpstreamLost:
            return self._leave_unanswered(exchange)
        if fault.kind is Kind.DROP_ANSWER:
            return self._leave_unanswered(exchange)
        return await self._hand_over(exchange, answer)

    async def _ask(self, exchange: _Exchange, kind: Kind) -> h11.Response:
        """Have the API server act, as early and as often as the fault wants; return the head of its last answer."""
        rule = exchange.rule
        if rule is not None and kind in (Kind.DELAY, Kind.HOLD):
            await _wait(rule)
        answer = await self._forward(exchange)
        if kind is Kind.DUPLICATE and self._upstream is not None:
            await self._upstream.receive_body()
            answer = await self._forward(exchange)
        if rule is not None and kind in (Kind.DELAY_ANSWER, Kind.HOLD_ANSWER):
            await _wait(rule)
        return answer

    async def _forward(self, exchange: _Exchange) -> h11.Response:
        """Send the request to the API server and return the head of its answer: by then it has acted."""
        try:
            upstream = await self._connection()
            await upstream.send(exchange.head)
            if exchange.body:
                await upstream.send(h11.Data(data=exchange.body))
            await upstream.send(h11.EndOfMessage())
            while not isinstance(event := await upstream.receive(), h11.Response):
                if not isinstance(event, h11.InformationalResponse):
                    raise _UpstreamLost
        except _LOST as loss:
            raise _UpstreamLost from loss
        return event

    async def _connection(self) -> _Wire:
        if self._upstream is not None and self._upstream.is_reusable():
            self._upstream.http.start_next_cycle()
            return self._upstream
        if self._upstream is not None:
            self._upstream.writer.transport.abort()
        target = urlsplit(self._upstream_url)
        self._upstream = _Wire(h11.CLIENT, await asyncio.open_connection(target.hostname, target.port, ssl=self._trust))
        return self._upstream

    async def _hand_over(self, exchange: _Exchange, answer: h11.Response) -> bool:
        self._note(exchange.outcome(answer.status_code))
        if not exchange.is_watch:
            return await self._relay(answer)
        self.is_watching = True
        try:
            return await self._relay_until_client_leaves(answer)
        finally:
            self.is_watching = False

    async def _relay(self, answer: h11.Response) -> bool:
        """Hand the answer on as it comes."""
        assert self._upstream is not None
        await self._client.send(answer)
        while isinstance(event := await self._upstream.receive(), h11.Data):
            await self._client.send(h11.Data(data=event.data))
        await self._client.send(h11.EndOfMessage())
        return True

    async def _relay_until_client_leaves(self, answer: h11.Response) -> bool:
        relay = asyncio.ensure_future(self._relay(answer))
        leaving = asyncio.ensure_future(self._client.reader.read(1))
        try:
            await asyncio.wait({relay, leaving}, return_when=asyncio.FIRST_COMPLETED)
            return relay.done() and not leaving.done() and relay.result()
        finally:
            for each in (relay, leaving):
                each.cancel()
            await asyncio.gather(relay, leaving, return_exceptions=True)

    async def _answer(self, exchange: _Exchange, status: int, body: bytes) -> bool:
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        self._note(exchange.outcome(status))
        await self._client.send(h11.Response(status_code=status, headers=headers))
        await self._client.send(h11.Data(data=body))
        await self._client.send(h11.EndOfMessage())
        return True

    def _leave_unanswered(self, exchange: _Exchange) -> bool:
        self._note(exchange.outcome(None))
        return False


async def _wait(rule: Rule) -> None:
    if rule.fault.kind in (Kind.DELAY, Kind.DELAY_ANSWER):
        await asyncio.sleep(rule.fault.seconds)
    else:
        while not rule.is_released:
            await asyncio.sleep(_HOLD_POLL_S)


def _status_body(code: int) -> bytes:
    reason = {410: "Expired"}.get(code, "")
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return json.dumps({**status, "metadata": {}, "message": "answered by the fault proxy"}).encode()
