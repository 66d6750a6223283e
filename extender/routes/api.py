"""What people and the live page read: the fleet and recent decisions."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query
from starlette.responses import Response

from extender.services import Services
from extender.views import fleet_view

_ENCODER = msgspec.json.Encoder()
_MOST_DECISIONS = 500


def api_router(services: Services) -> APIRouter:
    """Return the routes under ``/v1`` that only read."""
    router = APIRouter(prefix="/v1")

    @router.get("/fleet")
    async def fleet() -> Response:
        """Return every node with its devices: shares, load, health."""
        return _json(fleet_view(services.store, services.clock.now()))

    @router.get("/decisions")
    async def decisions(
        limit: Annotated[int, Query(ge=1, le=_MOST_DECISIONS)] = 100, after: Annotated[int, Query(ge=0)] = 0
    ) -> Response:
        """Return recent decisions, newest first; ``after`` leaves out those up to that sequence."""
        recent = services.decisions.recent(limit, after)
        return _json({"sequence": services.decisions.sequence, "decisions": [asdict(entry) for entry in recent]})

    return router


def _json(value: object, status: int = 200) -> Response:
    return Response(_ENCODER.encode(value), status, media_type="application/json")
