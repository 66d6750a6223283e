"""What agents push: one report a node, answered with the node's bookings when they changed."""

from __future__ import annotations

from typing import Protocol

import msgspec
import structlog

from extender.errors import ExtenderError, InvalidReport, NotAllowed, UnknownNode
from extender.intake import check_report, check_what_moves, decode_report, read_report
from extender.routes.raw import Answer, Headers
from extender.services import Services
from node_agent.report import Report

_LOG = structlog.get_logger(__name__)
_ENCODER = msgspec.json.Encoder()


class Guard(Protocol):
    """Checks that a caller may speak for a node."""

    async def check(self, headers: Headers, node: str) -> None:
        """Return if it may; raise NotAllowed if not."""

    def is_known(self, headers: Headers, node: str) -> bool:
        """Return whether it may, as far as that is known without asking anybody; False is no refusal."""


class Anyone:
    """Lets every caller report for every node: for a loopback address and the simulation."""

    async def check(self, headers: Headers, node: str) -> None:
        """Refuse nobody."""

    def is_known(self, headers: Headers, node: str) -> bool:
        """Know everybody."""
        del headers, node
        return True


class ReportRoutes:
    """The one route of the agents."""

    def __init__(self, services: Services, guard: Guard | None = None) -> None:
        self._services = services
        self._guard = guard or Anyone()
        self._applied = services.metrics.reports.labels("applied")

    def report_at_once(self, body: bytes, headers: Headers) -> Answer | None:
        """Take a report in that is beyond doubt; None for every other one, which `report` then answers."""
        try:
            report = decode_report(body)
            repeats = self._services.store.repeats(report)
            if repeats:
                check_what_moves(report)
            else:
                check_report(report)
            if self._guard.is_known(headers, report.node):
                return self._apply(report, repeats=repeats)
        except (InvalidReport, UnknownNode):
            pass
        return None

    async def report(self, body: bytes, headers: Headers) -> Answer:
        """Take a report in: 200 with the answer, 422 for one that cannot be understood, 404 for an unknown node."""
        try:
            report = read_report(body)
            await self._guard.check(headers, report.node)
            return self._apply(report)
        except InvalidReport as error:
            return self._refuse(error, 422, {"field": error.field, "found": error.found, "valid": error.valid})
        except NotAllowed as error:
            return self._refuse(error, error.status, {})
        except UnknownNode as error:
            return self._refuse(error, 404, {})

    def _apply(self, report: Report, *, repeats: bool = False) -> Answer:
        answer = self._services.store.apply_report(report, self._services.clock.now(), repeats=repeats)
        if answer is None:
            self._services.metrics.reports.labels("overtaken").inc()
            return Answer(b'{"error":"a later report of this node was there before"}', 409)
        self._applied.inc()
        return Answer(_ENCODER.encode(answer))

    def _refuse(self, error: ExtenderError, status: int, details: dict[str, str]) -> Answer:
        self._services.metrics.reports.labels(error.code).inc()
        _LOG.warning("report_refused", error=str(error), status=status)
        return Answer(_ENCODER.encode({"error": str(error), **details}), status)
