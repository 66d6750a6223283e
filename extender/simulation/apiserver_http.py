"""The simulated API server on HTTP: a plain ASGI application, paths and answers as Kubernetes has them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec

from extender.simulation.apiserver import RESOURCES, SimulatedApiServer
from extender.simulation.faults import Fault, FaultKind
from extender.simulation.semantics import ApiRefusal, Object
from extender.simulation.watching import watch

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_JSON = b"application/json"
_BODY_BYTES = 3 * 1024 * 1024
_ENCODER = msgspec.json.Encoder()
_PATH = re.compile(
    r"^/(?:api/v1|apis/coordination\.k8s\.io/v1)(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<resource>pods|nodes|events|leases)(?:/(?P<name>[^/]+)(?:/(?P<subresource>status|binding))?)?$"
)
_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
_HEALTH = ("/healthz", "/readyz", "/livez")
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_LIST_PARAMETERS = {
    "limit",
    "continue",
    "watch",
    "allowWatchBookmarks",
    "resourceVersion",
    "timeoutSeconds",
    "gracePeriodSeconds",
}
ABORT = "tangram.abort"
"""Where ``simulation.apiserving`` puts the function that cuts the connection, among the scope's extensions."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request, understood."""

    verb: str
    resource: str
    namespace: str
    name: str
    subresource: str
    query: dict[str, str]
    content_type: str
    body: bytes

    def content(self) -> Object:
        """Return the body as an object; 400 where it is none."""
        try:
            return msgspec.json.decode(self.body, type=dict[str, Any]) if self.body else {}
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ApiRefusal(400, "BadRequest", f"body: {error}") from error


class ApiServerApp:
    """ASGI application over one ``SimulatedApiServer``; ``bookmark_s`` is the time between two bookmarks."""

    def __init__(self, server: SimulatedApiServer, bookmark_s: float = 60.0) -> None:
        self.server = server
        self._bookmark_s = bookmark_s
        self._closing = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["path"] in _HEALTH:
            await _answer(send, 200, b'"ok"')
            return
        try:
            call = _understand(scope, await _body(receive))
        except ApiRefusal as refusal:
            await _refuse(send, refusal)
            return
        await self._serve(scope, call, receive, send)

    def close_watches(self) -> None:
        """End all watches; for the server's own loop."""
        self._closing.set()

    async def _serve(self, scope: Scope, call: Call, receive: Receive, send: Send) -> None:
        fault = self.server.faults.meet(call.verb, call.resource)
        if fault is not None and await self._is_spoilt_before(fault, scope, call, receive, send):
            return
        try:
            if call.verb == "watch":
                await watch(
                    self.server,
                    call.resource,
                    call.namespace,
                    call.query,
                    self._bookmark_s,
                    self._closing,
                    receive,
                    send,
                )
                return
            status, content = self._carry_out(call)
        except ApiRefusal as refusal:
            await _refuse(send, refusal)
            return
        if fault is not None and fault.kind is FaultKind.LOSE_ANSWER:
            await _cut(scope, receive)
            return
        await _answer(send, status, content)

    async def _is_spoilt_before(self, fault: Fault, scope: Scope, call: Call, receive: Receive, send: Send) -> bool:
        """Do what a fault does before the call is carried out; return whether that was the end of it."""
        match fault.kind:
            case FaultKind.DELAY:
                await asyncio.sleep(fault.seconds)
                return False
            case FaultKind.REFUSE:
                await _refuse(send, ApiRefusal(fault.status, "Simulated", "simulated fault"))
            case FaultKind.DROP:
                await _cut(scope, receive)
            case FaultKind.CUT:
                await _answer(send, 200, b"")
            case FaultKind.SILENCE:
                if call.verb == "watch":
                    await send(_start(200, None))
                await _until_disconnected(receive, self._closing)
            case FaultKind.LOSE_ANSWER:
                return False
        return True

    def _carry_out(self, call: Call) -> tuple[int, bytes]:
        server, place = self.server, (call.resource, call.namespace, call.name)
        is_status = call.subresource == "status"
        match call.verb:
            case "list":
                limit = int(call.query.get("limit") or 0)
                return 200, server.list_page(call.resource, call.namespace, limit, call.query.get("continue", ""))
            case "get":
                return 200, server.get(*place)
            case "bind":
                server.bind(call.namespace, call.name, call.content())
                return 201, _ENCODER.encode(
                    {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
                )
            case "create" if call.resource == "tokenreviews":
                return 201, self._review(call.content())
            case "create":
                return 201, server.create(call.resource, call.namespace, call.content())
            case "update":
                return 200, server.update(*place, call.content(), is_status=is_status)
            case "patch":
                return 200, server.patch(*place, _json(call.body), call.content_type, is_status=is_status)
            case "delete":
                return 200, server.delete(*place, _delete_options(call))
            case other:
                raise ApiRefusal(405, "MethodNotAllowed", f"{other} is not simulated for {call.resource}")

    def _review(self, review: Object) -> bytes:
        spec = review.get("spec") or {}
        status = self.server.review_token(spec.get("token", ""), spec.get("audiences") or [])
        return _ENCODER.encode({**review, "status": status})


async def _cut(scope: Scope, receive: Receive) -> None:
    """Cut the connection and wait until the server has seen it, so that it sends nothing more."""
    scope["extensions"][ABORT]()
    await receive()


def _delete_options(call: Call) -> Object:
    grace = call.query.get("gracePeriodSeconds")
    return call.content() | ({} if grace is None else {"gracePeriodSeconds": int(grace)})


def _json(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiRefusal(400, "BadRequest", f"body: {error}") from error


def _understand(scope: Scope, body: bytes) -> Call:
    method, path = scope["method"], scope["path"]
    headers = dict(scope["headers"])
    content_type = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip()
    if path == _REVIEWS and method == "POST":
        return Call("create", "tokenreviews", "", "", "", {}, content_type, body)
    found = _PATH.match(path)
    if found is None:
        raise ApiRefusal(404, "NotFound", f"{path} is not simulated")
    parts = {key: unquote(value) for key, value in found.groupdict(default="").items()}
    if not RESOURCES[parts["resource"]].is_namespaced and parts["namespace"]:
        raise ApiRefusal(404, "NotFound", f"{parts['resource']} live in no namespace")
    query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
    unknown = query.keys() - _LIST_PARAMETERS
    if unknown:
        raise ApiRefusal(400, "BadRequest", f"parameters {sorted(unknown)} are not simulated")
    verb = _verb(method, parts["name"], parts["subresource"], query)
    return Call(
        verb, parts["resource"], parts["namespace"], parts["name"], parts["subresource"], query, content_type, body
    )


def _verb(method: str, name: str, subresource: str, query: dict[str, str]) -> str:
    if subresource == "binding":
        return "bind" if method == "POST" else method.lower()
    if method == "GET":
        if name:
            return "get"
        return "watch" if query.get("watch") in ("true", "1") else "list"
    return _VERBS.get(method, method.lower())


async def _body(receive: Receive) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size > _BODY_BYTES:
            raise ApiRefusal(413, "RequestEntityTooLarge", f"body: more than {_BODY_BYTES} bytes")
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)


async def _until_disconnected(receive: Receive, closing: asyncio.Event) -> None:
    gone, closed = asyncio.ensure_future(receive()), asyncio.ensure_future(closing.wait())
    await asyncio.wait((gone, closed), return_when=asyncio.FIRST_COMPLETED)
    gone.cancel()
    closed.cancel()


def _start(status: int, length: int | None) -> MutableMapping[str, Any]:
    headers = [(b"content-type", _JSON)]
    if length is not None:
        headers.append((b"content-length", b"%d" % length))
    return {"type": "http.response.start", "status": status, "headers": headers}


async def _answer(send: Send, status: int, content: bytes) -> None:
    await send(_start(status, len(content)))
    await send({"type": "http.response.body", "body": content})


async def _refuse(send: Send, refusal: ApiRefusal) -> None:
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": str(refusal)}
    await _answer(send, refusal.status, _ENCODER.encode({**status, "reason": refusal.reason, "code": refusal.status}))
