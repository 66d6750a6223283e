"""What NVIDIA's device plugin has given out, from kubelet's pod-resources API (gRPC over a unix socket).

One call, ``List`` and ``GetAllocatableResources``, without arguments, answered by a small message: h2 and thirty lines
of protobuf decoding do it for 7 MiB, where grpcio takes 26 MiB on every GPU node (PSS, measured); the agent's whole
budget is 70.
"""

from __future__ import annotations

import socket
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from node_agent.report import PluginResource

MAX_REPLY_BYTES = 16 * 1024 * 1024
RESOURCE_PREFIX = "nvidia.com/"

_SERVICE = "/v1.PodResourcesLister/"


class PodResourcesError(Exception):
    """Kubelet did not answer, or not in a way that we understand."""


@dataclass(frozen=True, slots=True)
class Given:
    """Devices of one resource given to one container; ids as the plugin writes them (``<uuid>::<replica>``)."""

    namespace: str
    pod: str
    container: str
    resource: str
    device_ids: tuple[str, ...]


def list_given(socket_path: str, timeout_s: float = 5.0) -> list[Given]:
    """Ask kubelet what it has given out; raise PodResourcesError."""
    reply = _call(socket_path, "List", timeout_s)
    return [
        Given(namespace, pod, container, resource, ids)
        for pod_body in _messages(reply, 1)
        for pod, namespace in [(_string(pod_body, 1), _string(pod_body, 2))]
        for container_body in _messages(pod_body, 3)
        for container in [_string(container_body, 1)]
        for resource, ids in _devices(container_body, 2)
    ]


def list_allocatable(socket_path: str, timeout_s: float = 5.0) -> dict[str, tuple[str, ...]]:
    """Ask kubelet which devices each resource has; raise PodResourcesError."""
    found: dict[str, list[str]] = defaultdict(list)
    for resource, ids in _devices(_call(socket_path, "GetAllocatableResources", timeout_s), 1):
        found[resource].extend(ids)
    return {resource: tuple(ids) for resource, ids in found.items()}


def plugin_resources(allocatable: dict[str, tuple[str, ...]], given: list[Given]) -> tuple[PluginResource, ...]:
    """Sum up NVIDIA's resources: replicas in all, taken, and the devices behind them without their replica suffix."""
    used: dict[str, int] = defaultdict(int)
    for each in given:
        used[each.resource] += len(each.device_ids)
    return tuple(
        PluginResource(
            resource=resource,
            replicas=len(ids),
            used=used[resource],
            uuids=tuple(sorted({device_uuid_of(each) for each in ids})),
        )
        for resource, ids in sorted(allocatable.items())
        if resource.startswith(RESOURCE_PREFIX)
    )


def device_uuid_of(device_id: str) -> str:
    """Return the device behind a replica's id (node-side.md 3.1: strip after ``::``)."""
    return device_id.partition("::")[0]


def _call(socket_path: str, method: str, timeout_s: float) -> bytes:
    """Make one unary call with an empty request and return the body of the reply."""
    end_s = time.monotonic() + timeout_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(socket_path)
            return _exchange(connection, method, end_s)
        except OSError as problem:
            raise PodResourcesError(f"{socket_path}: {method}: {problem}") from problem


def _exchange(connection: socket.socket, method: str, end_s: float) -> bytes:
    import h2.config
    import h2.connection
    import h2.exceptions

    wire = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
    wire.initiate_connection()
    wire.send_headers(1, _headers(method))
    wire.send_data(1, b"\0\0\0\0\0", end_stream=True)
    connection.sendall(wire.data_to_send())
    reply = _Reply()
    while not reply.has_ended:
        if time.monotonic() > end_s:
            raise PodResourcesError(f"{method}: no answer in time")
        piece = connection.recv(1 << 16)
        if not piece:
            raise PodResourcesError(f"{method}: kubelet closed the connection")
        try:
            for event in wire.receive_data(piece):
                reply.take(event, wire)
        except h2.exceptions.ProtocolError as problem:
            raise PodResourcesError(f"{method}: {problem}") from problem
        connection.sendall(wire.data_to_send())
    return reply.message(method)


def _headers(method: str) -> list[tuple[str, str]]:
    return [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", _SERVICE + method),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ]


class _Reply:
    """Gathers one reply: data, and the status that may come in headers or in trailers."""

    def __init__(self) -> None:
        self.has_ended = False
        self._status = ""
        self._words = ""
        self._body = bytearray()

    def take(self, event: object, wire: object) -> None:
        import h2.connection
        import h2.events

        assert isinstance(wire, h2.connection.H2Connection)
        match event:
            case h2.events.ResponseReceived(headers=headers) | h2.events.TrailersReceived(headers=headers):
                fields = {str(name): str(value) for name, value in headers or ()}
                self._status = fields.get("grpc-status", self._status)
                self._words = fields.get("grpc-message", self._words)
            case h2.events.DataReceived(data=data, flow_controlled_length=length):
                self._body += data or b""
                if len(self._body) > MAX_REPLY_BYTES:
                    raise PodResourcesError(f"reply is larger than {MAX_REPLY_BYTES} bytes")
                if length:
                    wire.acknowledge_received_data(length, 1)
            case h2.events.StreamEnded():
                self.has_ended = True
            case h2.events.StreamReset() | h2.events.ConnectionTerminated():
                raise PodResourcesError("kubelet broke the call off")
            case _:
                return

    def message(self, method: str) -> bytes:
        if self._status not in {"", "0"}:
            raise PodResourcesError(f"{method}: gRPC status {self._status}: {self._words}")
        if len(self._body) < 5 or self._body[0] != 0:
            raise PodResourcesError(f"{method}: reply without an uncompressed message")
        length = int.from_bytes(self._body[1:5], "big")
        return bytes(self._body[5 : 5 + length])


def _devices(body: bytes, number: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    for each in _messages(body, number):
        yield _string(each, 1), tuple(raw.decode("utf-8", "replace") for raw in _messages(each, 2))


def _string(body: bytes, number: int) -> str:
    return next(_messages(body, number), b"").decode("utf-8", "replace")


def _messages(body: bytes, number: int) -> Iterator[bytes]:
    """Yield the length-delimited fields with this number; others, also of kinds to come, are skipped."""
    at = 0
    while at < len(body):
        tag, at = _varint(body, at)
        match tag & 7:
            case 0:
                _, at = _varint(body, at)
            case 1:
                at += 8
            case 2:
                length, at = _varint(body, at)
                if at + length > len(body):
                    raise PodResourcesError("reply is cut off")
                if tag >> 3 == number:
                    yield body[at : at + length]
                at += length
            case 5:
                at += 4
            case kind:
                raise PodResourcesError(f"reply has a field of kind {kind}")


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(body) and shift < 64:
        byte = body[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise PodResourcesError("reply is cut off")
