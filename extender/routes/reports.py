"""What agents push: one report a node, answered with the node's bookings when they changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import structlog

from extender.errors import ExtenderError, InvalidReport, NotAllowed, UnknownNode
from extender.intake import read_report
from extender.routes.raw import Answer, Headers
from extender.services import Services
from node_agent.report import Report

_LOG = structlog.get_logger(__name__)
_ENCODER = msgspec.json.Encoder()

Guard = Callable[[Headers, str], Awaitable[None]]
"""Checks that a caller may speak for a node; raises NotAllowed if not."""


async def anyone(headers: Headers, node: str) -> None:
    """Let every caller report for every node: for a loopback address and the simulation."""
    del headers, node


class ReportRoutes:
    """The one route of the agents."""

    def __init__(self, services: Services, guard: Guard = anyone) -> None:
        self._services = services
        self._guard = guard
        self._applied = services.metrics.reports.labels("applied")

    async def report(self, body: bytes, headers: Headers) -> Answer:
        """Take a report in: 200 with the answer, 422 for one that cannot be understood, 404 for an unknown node."""
        try:
            report = read_report(body)
            await self._guard(headers, report.node)
            return self._apply(report)
        except InvalidReport as error:
            return self._refuse(error, 422, {"field": error.field, "found": error.found, "valid": error.valid})
        except NotAllowed as error:
            return self._refuse(error, error.status, {})
        except UnknownNode as error:
            return self._refuse(error, 404, {})

    def _apply(self, report: Report) -> Answer:
        answer = self._services.store.apply_report(report, self._services.clock.now())
        if answer is None:
            self._services.metrics.reports.labels("overtaken").inc()
            return Answer(b'{"error":"a later report of this node was there before"}', 409)
        self._applied.inc()
        return Answer(_ENCODER.encode(answer))

    def _refuse(self, error: ExtenderError, status: int, details: dict[str, str]) -> Answer:
        self._services.metrics.reports.labels(error.code).inc()
        _LOG.warning("report_refused", error=str(error), status=status)
        return Answer(_ENCODER.encode({"error": str(error), **details}), status)
