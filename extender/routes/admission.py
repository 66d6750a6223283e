"""What the API server's webhooks ask: mutate and validate.

A question that can be read is answered with 200 and its own UID, a refusal included. One that cannot be read is
answered with 400 and the reason; the API server then does what the webhook's failurePolicy says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus

import structlog
from prometheus_client import CollectorRegistry, Counter

from extender.admission import Door
from extender.admission_review import (
    Opinion,
    ReviewedPod,
    ReviewRequest,
    decode_review,
    decode_reviewed_pod,
    encode_answer,
)
from extender.errors import MalformedBody
from extender.routes.raw import Answer, Headers, RawRoute

MUTATE_PATH = "/v1/admission/mutate"
VALIDATE_PATH = "/v1/admission/validate"

_LOG = structlog.get_logger(__name__)

Count = Callable[[str, str], None]
"""Counts one answer by webhook (``mutate``, ``validate``) and outcome (``allowed``, ``refused``, ``malformed``)."""


def count_nothing(webhook: str, outcome: str) -> None:
    """Count nothing."""
    del webhook, outcome


class AdmissionRoutes:
    """The two routes of the API server's webhooks."""

    def __init__(self, door: Door, count: Count = count_nothing) -> None:
        self._door = door
        self._count = count

    async def mutate(self, body: bytes, headers: Headers) -> Answer:
        """Answer what is to be written into a pod."""
        del headers
        return self._answer("mutate", body, lambda pod, request: self._door.mutate(pod, request.namespace))

    async def validate(self, body: bytes, headers: Headers) -> Answer:
        """Answer whether a pod may be created as it is."""
        del headers
        return self._answer("validate", body, lambda pod, _: self._door.validate(pod))

    def _answer(self, webhook: str, body: bytes, judge: Callable[[ReviewedPod, ReviewRequest], Opinion]) -> Answer:
        try:
            request = decode_review(body)
        except MalformedBody as error:
            self._count(webhook, "malformed")
            _LOG.warning("admission_malformed", webhook=webhook, error=str(error))
            return Answer(encode_answer("", _malformed(error)), HTTPStatus.BAD_REQUEST)
        opinion = _opinion(request, judge)
        self._count(webhook, "refused" if opinion.problems else "allowed")
        if opinion.problems:
            _LOG.info("admission_refused", webhook=webhook, uid=request.uid, problems=len(opinion.problems))
        return Answer(encode_answer(request.uid, opinion))


def counting(registry: CollectorRegistry) -> Count:
    """Return what counts answers in a registry, as ``tangram_extender_admissions_total``."""
    words = "Pods judged at admission, by webhook and outcome"
    counter = Counter("tangram_extender_admissions", words, ("webhook", "outcome"), registry=registry)

    def count(webhook: str, outcome: str) -> None:
        counter.labels(webhook, outcome).inc()

    return count


def admission_routes(door: Door, count: Count = count_nothing) -> Mapping[str, RawRoute]:
    """Return the webhooks' routes by path, to be mounted behind the listener that the API server calls."""
    routes, limit = AdmissionRoutes(door, count), door.rules.max_body_bytes
    return {MUTATE_PATH: RawRoute(routes.mutate, limit), VALIDATE_PATH: RawRoute(routes.validate, limit)}


def _opinion(request: ReviewRequest, judge: Callable[[ReviewedPod, ReviewRequest], Opinion]) -> Opinion:
    if not request.creates_pod:
        return Opinion()
    try:
        return judge(decode_reviewed_pod(request), request)
    except MalformedBody as error:
        return _malformed(error)


def _malformed(error: MalformedBody) -> Opinion:
    return Opinion((str(error),), status=HTTPStatus.BAD_REQUEST)
