"""Kubernetes JSON that only ``extender.kube`` writes and reads: Binding, Event, Lease, TokenReview.

Answers are decoded leniently (unknown fields skipped, null for what may be left out); one that is not what its call
promises is an UnreadableAnswer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from extender.allocation import bound_labels
from extender.errors import UnreadableAnswer
from extender.kubeapi import EventNote, Lease, TokenIdentity
from extender.objects import Metadata, Pod

_T = TypeVar("_T")
_MESSAGE_CHARACTERS = 1024


class _LeaseSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Status(msgspec.Struct, frozen=True):
    status: str = ""


class _Lease(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: _LeaseSpec = _LeaseSpec()


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...]] | None = None


class _ReviewStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()
    audiences: tuple[str, ...] | None = None


class _TokenReview(msgspec.Struct, frozen=True):
    status: _ReviewStatus


_ENCODER = msgspec.json.Encoder()
_POD = msgspec.json.Decoder(Pod)
_STATUS = msgspec.json.Decoder(_Status)
_LEASE = msgspec.json.Decoder(_Lease)
_TOKEN_REVIEW = msgspec.json.Decoder(_TokenReview)


def encode_binding(
    namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str], resource_version: str = ""
) -> bytes:
    """Return a Binding whose annotations the API server merges into the pod.

    UID and, where given, resource version are preconditions: the pod is the one that was read, and as it was read.
    """
    precondition = {"resourceVersion": resource_version} if resource_version else {}
    return _ENCODER.encode(
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": uid,
                **precondition,
                "annotations": annotations,
                "labels": bound_labels(annotations),
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
    )


def encode_event(note: EventNote, component: str, now: datetime, suffix: str) -> bytes:
    """Return an Event of ``v1``; ``suffix`` makes its name unique, ``now`` is aware of its time zone (UTC)."""
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return _ENCODER.encode(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{note.name}.{suffix}", "namespace": note.namespace or "default"},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": note.kind,
                "name": note.name,
                "namespace": note.namespace,
                "uid": note.uid,
            },
            "reason": note.reason,
            "message": note.message[:_MESSAGE_CHARACTERS],
            "type": note.type,
            "source": {"component": component},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
    )


def encode_token_review(token: str, audiences: Sequence[str]) -> bytes:
    """Return a TokenReview that asks about ``token``."""
    spec = {"token": token, "audiences": list(audiences)}
    return _ENCODER.encode({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec})


def encode_lease(lease: Lease) -> bytes:
    """Return the lease as the API server takes it; without a resource version it can only be created."""
    metadata = {"namespace": lease.namespace, "name": lease.name}
    if lease.resource_version:
        metadata["resourceVersion"] = lease.resource_version
    spec = _LeaseSpec(
        holder_identity=lease.holder,
        lease_duration_seconds=lease.duration_s or None,
        acquire_time=lease.acquire_time or None,
        renew_time=lease.renew_time or None,
        lease_transitions=lease.transitions,
    )
    return _ENCODER.encode(
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
    )


def decode_pod(body: bytes, namespace: str, name: str) -> Pod:
    """Read the pod that was asked for; raise UnreadableAnswer, also for another one and for one without a UID.

    From what is read follows whether a pod is gone, so an answer that is not about it must not count as one.
    """
    pod = _decode(body, _POD, "pod")
    found = pod.metadata
    if (found.namespace, found.name) != (namespace, name) or not found.uid:
        msg = f"pod {namespace}/{name}: the answer is about pod {found.namespace}/{found.name} with UID {found.uid!r}"
        raise UnreadableAnswer(msg)
    return pod


def check_success(body: bytes) -> None:
    """Raise UnreadableAnswer unless the answer to a Binding is a Status of success, as API servers send it."""
    found = _decode(body, _STATUS, "answer to a binding").status
    if found != "Success":
        msg = f"answer to a binding: found status {found!r}, valid is Success"
        raise UnreadableAnswer(msg)


def decode_lease(body: bytes) -> Lease:
    """Read one lease; raise UnreadableAnswer."""
    lease = _decode(body, _LEASE, "lease")
    spec = lease.spec
    return Lease(
        namespace=lease.metadata.namespace,
        name=lease.metadata.name,
        holder=spec.holder_identity or "",
        duration_s=spec.lease_duration_seconds or 0,
        acquire_time=spec.acquire_time or "",
        renew_time=spec.renew_time or "",
        transitions=spec.lease_transitions or 0,
        resource_version=lease.metadata.resource_version,
    )


def decode_token_review(body: bytes, audiences: Sequence[str]) -> TokenIdentity | None:
    """Read whom the token speaks for, None if it is not valid for any of ``audiences``; raise UnreadableAnswer.

    An authenticator that knows nothing of audiences answers yes without naming one: that is not enough.
    """
    status = _decode(body, _TOKEN_REVIEW, "token review").status
    valid_for = status.audiences or ()
    if not status.authenticated or not set(valid_for) & set(audiences):
        return None
    user = status.user
    return TokenIdentity(user.username, user.uid, user.groups or (), valid_for, user.extra or {})


def _decode(body: bytes, decoder: msgspec.json.Decoder[_T], what: str) -> _T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        msg = f"{what} of {len(body)} bytes: {error}"
        raise UnreadableAnswer(msg) from error
