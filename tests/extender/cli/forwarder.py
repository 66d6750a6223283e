"""The API server's part in ``kubectl port-forward``: pods, tokens, and a WebSocket that ends at a TCP port.

Speaks what the official client speaks (``v4.channel.k8s.io``): each message is a channel number and bytes; the first
message of a channel is the port, little-endian. Blocking, a thread a connection, loopback only.
"""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_BINARY, _CLOSE = 2, 8
NAMESPACE = "/api/v1/namespaces/tangram-system"


@dataclass
class Cluster:
    """What the API server knows: pods by name (ready or not), the token to give (empty: refuse), where pods listen."""

    pods: dict[str, bool]
    target: tuple[str, int]
    token: str = "viewer-token"
    asked: list[str] = field(default_factory=list)


@contextmanager
def api_server(cluster: Cluster) -> Iterator[str]:
    """Serve the cluster; yields its address."""

    class Handler(_Handler):
        world = cluster

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    world: Cluster
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Stay silent."""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        self.world.asked.append(f"GET {path}")
        if path == f"{NAMESPACE}/pods":
            assert "component%3Dextender" in query
            self._answer(200, {"kind": "PodList", "items": [_pod(*entry) for entry in self.world.pods.items()]})
        elif path.endswith("/portforward"):
            self._forward()
        else:
            self._answer(404, {"kind": "Status", "message": path})

    def do_POST(self) -> None:
        self.world.asked.append(f"POST {self.path}")
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.world.token:
            self._answer(403, {"kind": "Status", "message": "forbidden"})
            return
        assert body["spec"]["audiences"] == ["tangram"]
        stamp = "2030-01-01T00:00:00Z"
        self._answer(201, {**body, "status": {"token": self.world.token, "expirationTimestamp": stamp}})

    def _answer(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _forward(self) -> None:
        key = hashlib.sha1((self.headers["Sec-WebSocket-Key"] + _MAGIC).encode()).digest()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(key).decode())
        self.send_header("Sec-WebSocket-Protocol", "v4.channel.k8s.io")
        self.end_headers()
        self.close_connection = True
        port = (8273).to_bytes(2, "little")
        with socket.create_connection(self.world.target) as target:
            self._send(b"\x00" + port)
            self._send(b"\x01" + port)
            back = threading.Thread(target=self._bring_back, args=(target,), daemon=True)
            back.start()
            with suppress(OSError, EOFError):
                for message in self._messages():
                    if message[:1] == b"\x00":
                        target.sendall(message[1:])
            with suppress(OSError):
                target.shutdown(socket.SHUT_RDWR)
            back.join(5)

    def _bring_back(self, target: socket.socket) -> None:
        with suppress(OSError):
            while data := target.recv(32_768):
                self._send(b"\x00" + data)

    def _send(self, payload: bytes) -> None:
        length = bytes([126]) + len(payload).to_bytes(2, "big") if len(payload) >= 126 else bytes([len(payload)])
        self.wfile.write(bytes([0x80 | _BINARY]) + length + payload)
        self.wfile.flush()

    def _messages(self) -> Iterator[bytes]:
        while True:
            first, second = self._read(2)
            size = second & 0x7F
            if size >= 126:
                size = int.from_bytes(self._read(2 if size == 126 else 8), "big")
            mask, data = self._read(4), self._read(size)
            if first & 0x0F == _CLOSE:
                return
            yield bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))

    def _read(self, size: int) -> bytes:
        data = self.rfile.read(size)
        if len(data) < size:
            raise EOFError
        return data


def _pod(name: str, is_ready: bool) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True" if is_ready else "False"}]
    return {"metadata": {"name": name}, "spec": {"containers": []}, "status": {"conditions": conditions}}
