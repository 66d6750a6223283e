"""What the machinery around us asks: alive, ready, metrics."""

from __future__ import annotations

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import PlainTextResponse, Response

from extender.services import Services


def ops_router(services: Services) -> APIRouter:
    """Return the probes and the metrics."""
    router = APIRouter()

    @router.get("/healthz")
    async def healthz() -> Response:
        """Answer that the event loop turns."""
        return PlainTextResponse("ok")

    @router.get("/readyz")
    async def readyz() -> Response:
        """Answer 200 once the lists of pods and nodes are in; the body also says whether decisions are made."""
        missing = services.readiness.missing(services.clock.now())
        if not services.readiness.is_ready:
            return PlainTextResponse(missing, 503)
        return PlainTextResponse(missing or "ok")

    @router.get("/metrics")
    async def metrics() -> Response:
        """Return every metric in Prometheus' text format."""
        return Response(await services.metrics.page(services.clock.now()), media_type=CONTENT_TYPE_LATEST)

    return router
