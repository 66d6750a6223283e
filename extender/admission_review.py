"""AdmissionReview of ``admission.k8s.io/v1``: what the API server asks at the door, and what it is told.

A pod is decoded apart from the review around it, so that a refusal can carry the review's UID even where the pod cannot
be read: the API server drops answers whose UID is not its own. Source: ``k8s.io/api/admission/v1/types.go``.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

import msgspec

from extender.errors import MalformedBody
from extender.objects import Metadata, Pod, PodSpec

API_VERSION = "admission.k8s.io/v1"
MAX_WARNING_CHARACTERS = 256
"""kube-apiserver cuts longer warnings itself once they are many (``maxWarningLength`` of its webhook client)."""
MAX_WARNINGS = 16

_MAX_MESSAGE_CHARACTERS = 8192


class Toleration(msgspec.Struct, frozen=True, gc=False):
    """A taint that a pod bears; ``key`` is empty where it bears all."""

    key: str = ""


class ReviewedMetadata(Metadata, frozen=True, gc=False, rename="camel"):
    """Name and marks of a pod that may not have its name yet."""

    generate_name: str = ""


class ReviewedSpec(PodSpec, frozen=True, gc=False, rename="camel"):
    """What a pod's author wants, as far as admission is concerned."""

    tolerations: tuple[Toleration, ...] | None = None


class ReviewedPod(Pod, frozen=True, gc=False, rename="camel"):
    """A pod at the door."""

    metadata: ReviewedMetadata = ReviewedMetadata()
    spec: ReviewedSpec = ReviewedSpec()


class Resource(msgspec.Struct, frozen=True, gc=False):
    """What kind of object a request is about; ``resource`` is its plural name."""

    group: str = ""
    version: str = ""
    resource: str = ""


class ReviewRequest(msgspec.Struct, frozen=True, rename="camel"):
    """One question; ``namespace`` is that of the request, which the object itself may leave out."""

    uid: str
    resource: Resource = Resource()
    sub_resource: str = ""
    operation: str = ""
    namespace: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def creates_pod(self) -> bool:
        """Return whether a pod is being created: the only thing that the webhooks have an opinion on."""
        about = (self.resource.group, self.resource.resource, self.sub_resource, self.operation)
        return about == ("", "pods", "", "CREATE")


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: ReviewRequest


class Operation(msgspec.Struct, frozen=True):
    """One step of a JSON Patch (RFC 6902); ``path`` is a JSON Pointer (RFC 6901)."""

    op: str
    path: str
    value: object


@dataclass(frozen=True, slots=True)
class Opinion:
    """What is thought of one request: refused where there are ``problems``, else changed by ``patch``."""

    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    patch: tuple[Operation, ...] = ()
    status: HTTPStatus = HTTPStatus.UNPROCESSABLE_ENTITY
    """The status of a refusal."""


_REVIEW = msgspec.json.Decoder(_Review)
_POD = msgspec.json.Decoder(ReviewedPod)
_ENCODER = msgspec.json.Encoder()
_REASONS = {HTTPStatus.UNPROCESSABLE_ENTITY: "Invalid", HTTPStatus.BAD_REQUEST: "BadRequest"}


def decode_review(body: bytes) -> ReviewRequest:
    """Read the question; raise MalformedBody for what is no AdmissionReview of ``admission.k8s.io/v1``."""
    try:
        review = _REVIEW.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        msg = f"AdmissionReview of {len(body)} bytes: {error}"
        raise MalformedBody(msg) from error
    if (review.api_version, review.kind) != (API_VERSION, "AdmissionReview"):
        msg = f"found {review.kind[:64]!r} of {review.api_version[:64]!r}, valid is AdmissionReview of {API_VERSION!r}"
        raise MalformedBody(msg)
    return review.request


def decode_reviewed_pod(request: ReviewRequest) -> ReviewedPod:
    """Read the pod that is being created; raise MalformedBody where it is none."""
    try:
        return _POD.decode(request.object)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        msg = f"request.object is no pod: {error}"
        raise MalformedBody(msg) from error


def encode_answer(uid: str, opinion: Opinion) -> bytes:
    """Return the AdmissionReview that tells the API server what is thought."""
    response: dict[str, object] = {"uid": uid, "allowed": not opinion.problems}
    if opinion.problems:
        response["status"] = {
            "code": opinion.status.value,
            "reason": _REASONS[opinion.status],
            "message": _message(opinion.problems),
        }
    elif opinion.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(_ENCODER.encode(opinion.patch)).decode()
    if opinion.warnings:
        response["warnings"] = [_cut(text, MAX_WARNING_CHARACTERS) for text in opinion.warnings[:MAX_WARNINGS]]
    return _ENCODER.encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})


def _message(problems: Sequence[str]) -> str:
    if len(problems) == 1:
        return _cut(problems[0], _MAX_MESSAGE_CHARACTERS)
    listed = "; ".join(f"({number}) {problem}" for number, problem in enumerate(problems, 1))
    return _cut(f"{len(problems)} problems: {listed}", _MAX_MESSAGE_CHARACTERS)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
