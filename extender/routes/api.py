"""What people and the live page read: the fleet and recent decisions."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from extender.routes.raw import Headers
from extender.services import Services
from extender.viewers import decision_without_names, fleet_without_names
from extender.views import fleet_view

_ENCODER = msgspec.json.Encoder()
_MOST_DECISIONS = 500


def api_router(services: Services) -> APIRouter:
    """Return the routes under ``/v1`` that only read."""
    router = APIRouter(prefix="/v1")

    @router.get("/fleet")
    async def fleet(request: Request) -> Response:
        """Return every node with its devices: shares, load, health."""
        found = await fleet_view(services.store, services.clock.now(), lambda: services.clock.sleep(0))
        return _json(found if await services.viewers(headers_of(request)) else fleet_without_names(found))

    @router.get("/decisions")
    async def decisions(
        request: Request,
        limit: Annotated[int, Query(ge=1, le=_MOST_DECISIONS)] = 100,
        after: Annotated[int, Query(ge=0)] = 0,
    ) -> Response:
        """Return recent decisions, newest first; ``after`` leaves out those up to that sequence."""
        recent = services.decisions.recent(limit, after)
        if not await services.viewers(headers_of(request)):
            recent = tuple(map(decision_without_names, recent))
        return _json({"sequence": services.decisions.sequence, "decisions": recent})

    return router


def headers_of(request: Request) -> Headers:
    """Return a request's headers as the raw routes get them: names in lower case."""
    return dict(request.scope["headers"])


def _json(value: object, status: int = 200) -> Response:
    return Response(_ENCODER.encode(value), status, media_type="application/json")
