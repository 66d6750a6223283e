"""What people and ``tangram`` ask: why a pod is where it is, why not a node, whether the books are right, who idles."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from extender.errors import KubeError
from extender.explaining import Explained
from extender.history import HistoryUnavailable
from extender.insight import CannotJudge, Told
from extender.measured import device_rows
from extender.mix_file import encode_mix
from extender.routes.api import headers_of
from extender.services import Services
from extender.usage import IDLE_AFTER_S
from extender.viewers import ViewersOnly, usage_without_names

_ENCODER = msgspec.json.Encoder()
_MOST_ATTEMPTS = 500
_FORWARDED = ("authorization",)

Limit = Annotated[int, Query(ge=1, le=_MOST_ATTEMPTS)]


class InsightRoutes:
    """The routes under ``/v1`` that explain and compare; all of them only read."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._insight = services.insight

    async def explain(self, namespace: str, pod: str, request: Request, limit: Limit = 100) -> Response:
        """Return why a pod is where it is or nowhere, now and at each attempt, merged over the replicas."""
        headers = {name: request.headers[name] for name in _FORWARDED if name in request.headers}
        try:
            told = await self._insight.told(namespace, pod, headers, limit)
        except KubeError as error:
            return _json({"error": f"the API server did not say whether pod {namespace}/{pod} exists: {error}"}, 503)
        known = self._services.decisions.of_pod(namespace, pod)
        if told.now is None and not told.attempts and not known:
            message = f"pod {namespace}/{pod} does not exist, and nothing is remembered of it"
            silent = [f"{peer.address} ({peer.problem})" for peer in told.peers if peer.problem]
            if silent:
                message += f"; replicas that did not answer may remember it: {', '.join(silent)}"
            return _json({"error": message}, 404)
        decisions = {str(verb): decision for verb, decision in known.items()}
        return _json({"pod": f"{namespace}/{pod}", "decisions": decisions, **_now(told.now), **_past(told)})

    async def why_not(self, node: str, namespace: str, pod: str) -> Response:
        """Return how one node fares for a pod, device by device."""
        try:
            detail, words = await self._insight.why_not(node, namespace, pod)
        except CannotJudge as error:
            return _json({"error": str(error)}, error.status)
        except KubeError as error:
            return _json({"error": f"pod {namespace}/{pod} could not be read: {error}"}, 503)
        return _json({"pod": f"{namespace}/{pod}", "node": node, "words": words, "detail": detail})

    async def history(self, namespace: str, pod: str, limit: Limit = _MOST_ATTEMPTS) -> Response:
        """Return what this replica alone keeps of the pods of that name."""
        try:
            return _json(await self._insight.history.of_pod(namespace, pod, limit))
        except HistoryUnavailable as error:
            return _json({"error": str(error)}, 503)

    async def audit(self) -> Response:
        """Compare books, annotations and reports; lists every pod of the cluster."""
        try:
            findings = await self._insight.audited()
        except KubeError as error:
            return _json({"error": f"pods could not be listed: {error}"}, 503)
        if findings is None:
            return _json({"error": "this extender is not connected to an API server that lists pods"}, 503)
        return _json({"findings": findings, "silent_nodes": sorted(self._services.store.unreported)})

    async def usage(self, request: Request, idle_after_s: Annotated[float, Query(ge=0)] = IDLE_AFTER_S) -> Response:
        """Return idle holders, overuse, and GPU hours by namespace."""
        found = self._insight.usage.view(idle_after_s)
        return _json(found if await self._services.viewers(headers_of(request)) else usage_without_names(found))

    async def devices(self) -> Response:
        """Return every device, booked beside measured."""
        rows = await device_rows(self._services.store, lambda: self._services.clock.sleep(0))
        return _json({"devices": rows})

    async def policies(self) -> Response:
        """Return the policies by name, as weights by scorer, and which is the default."""
        known = self._services.evaluations.policies
        weights = {name: {scorer: weight for scorer, _, weight in each.scorers()} for name, each in known.items()}
        return _json({"default": self._services.settings.policy, "policies": weights})

    async def mix(self) -> Response:
        """Return the mix of request shapes that this replica has learned, as a file for ``TANGRAM_MIX_FILE``."""
        return Response(encode_mix(self._services.evaluations.mix), media_type="application/json")

    async def only_viewers(self, request: Request) -> None:
        """Return for a viewer, raise ViewersOnly for anybody else."""
        if not await self._services.viewers(headers_of(request)):
            raise ViewersOnly


def insight_router(services: Services) -> APIRouter:
    """Return the router of ``InsightRoutes``; what is about pods from beginning to end is for viewers."""
    router, routes = APIRouter(prefix="/v1"), InsightRoutes(services)
    viewers = [Depends(routes.only_viewers)]
    router.add_api_route("/explain/{namespace}/{pod}", routes.explain, dependencies=viewers)
    router.add_api_route("/why-not/{node}/{namespace}/{pod}", routes.why_not, dependencies=viewers)
    router.add_api_route("/history/{namespace}/{pod}", routes.history, dependencies=viewers)
    router.add_api_route("/audit", routes.audit, dependencies=viewers)
    router.add_api_route("/usage", routes.usage)
    router.add_api_route("/devices", routes.devices)
    router.add_api_route("/policies", routes.policies)
    router.add_api_route("/mix", routes.mix, dependencies=viewers)
    return router


async def for_viewers_only(request: Request, error: Exception) -> Response:
    """Answer 401 to whoever is no viewer, saying how to become one."""
    del request
    answer = _json({"error": str(error)}, 401)
    answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


def _now(now: Explained | None) -> dict[str, object]:
    if now is None:
        return {"state": "gone", "uid": "", "words": ["The pod does not exist any more."], "holding": None}
    return {name: getattr(now, name) for name in now.__dataclass_fields__ if name != "pod"}


def _past(told: Told) -> dict[str, object]:
    return {
        "attempts": told.attempts,
        "explanations": told.explanations,
        "kept": told.kept,
        "peers": told.peers,
    }


def _json(value: object, status: int = 200) -> Response:
    return Response(_ENCODER.encode(value), status, media_type="application/json")
