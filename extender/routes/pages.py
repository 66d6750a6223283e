"""The live page, its assets, its updates, and the details of one node.

Everything the page loads comes from here, and its content security policy allows nothing else.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from extender.pages.live import LiveView, TooManyViewers
from extender.routes.api import headers_of
from extender.viewers import Viewers, everyone

_STATIC = Path(__file__).parent.parent / "pages" / "static"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_NO_STORE = {**HEADERS, "Cache-Control": "no-store"}


def page_routes(view: LiveView, viewers: Viewers = everyone) -> APIRouter:
    """Return the routes of the page that shows what ``view`` sees, with pod names to ``viewers``."""
    router = APIRouter(include_in_schema=False)
    files = {path.name: path.read_bytes() for path in sorted(_STATIC.iterdir()) if path.suffix in _TYPES}

    @router.get("/")
    async def page() -> Response:
        return _file("index.html", files["index.html"])

    @router.get("/assets/{name}")
    async def asset(name: str) -> Response:
        content = files.get(name)
        return _problem(404, f"asset {name[:80]!r} does not exist") if content is None else _file(name, content)

    @router.get("/v1/stream")
    async def stream(request: Request) -> Response:
        headers = headers_of(request)
        try:
            updates = view.updates(lambda: viewers(headers))
        except TooManyViewers:
            return _problem(503, "too many live pages are open, close one of them", {"Retry-After": "10"})
        return StreamingResponse(updates, media_type="text/event-stream", headers=_NO_STORE)

    @router.get("/v1/live/nodes/{name:path}")
    async def node(name: str, request: Request) -> Response:
        found = view.node(name, names=await viewers(headers_of(request)))
        if found is None:
            return _problem(404, f"node {name[:253]!r} is not known")
        return Response(msgspec.json.encode(found), media_type="application/json", headers=_NO_STORE)

    return router


def _file(name: str, content: bytes) -> Response:
    return Response(content, media_type=_TYPES[Path(name).suffix], headers=HEADERS)


def _problem(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    body = msgspec.json.encode({"error": message})
    return Response(body, status_code=status, media_type="application/json", headers={**_NO_STORE, **(headers or {})})
