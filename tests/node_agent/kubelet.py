"""A stand-in for kubelet's pod-resources service: a real unix socket, HTTP/2 and gRPC framing, protobuf by hand."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from typing import Self

import h2.config
import h2.connection
import h2.events


def field(number: int, body: bytes | str) -> bytes:
    """Encode one length-delimited field."""
    raw = body.encode() if isinstance(body, str) else body
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def devices(resource: str, *ids: str) -> bytes:
    """Encode ContainerDevices, with a topology field that readers have to skip."""
    return field(1, resource) + b"".join(field(2, each) for each in ids) + field(3, field(1, varint(8) + varint(0)))


class Kubelet:
    """Answers ``List`` and ``GetAllocatableResources`` with the bodies given; ``status`` other than 0 is an error."""

    def __init__(self, path: Path, bodies: dict[str, bytes], status: str = "0") -> None:
        self.path = str(path)
        self.calls: list[str] = []
        self._bodies = bodies
        self._status = status
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(self.path)
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            # A caller that hangs up with bytes unread is none of our business.
            with connection, contextlib.suppress(OSError):
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        wire = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        wire.initiate_connection()
        connection.sendall(wire.data_to_send())
        pending = b""
        method = ""
        while piece := connection.recv(65536):
            for event in wire.receive_data(piece):
                if isinstance(event, h2.events.RequestReceived):
                    method = dict(event.headers)[":path"].rpartition("/")[2]
                    self.calls.append(method)
                elif isinstance(event, h2.events.StreamEnded):
                    wire.send_headers(1, [(":status", "200"), ("content-type", "application/grpc")])
                    body = self._bodies.get(method, b"")
                    pending = b"\0" + len(body).to_bytes(4, "big") + body if self._status == "0" else b""
                    pending = self._send(wire, pending, is_asked=True)
                elif isinstance(event, h2.events.WindowUpdated) and pending:
                    pending = self._send(wire, pending, is_asked=True)
            connection.sendall(wire.data_to_send())

    def _send(self, wire: h2.connection.H2Connection, pending: bytes, *, is_asked: bool) -> bytes:
        while pending and (room := min(wire.local_flow_control_window(1), wire.max_outbound_frame_size)) > 0:
            wire.send_data(1, pending[:room])
            pending = pending[room:]
        if is_asked and not pending:
            wire.send_headers(1, [("grpc-status", self._status), ("grpc-message", "told to")], end_stream=True)
        return pending
