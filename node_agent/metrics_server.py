"""Serves the metrics on a port of their own, over TLS where the operator gives a certificate, which is read again.

A client that connects and says nothing holds nobody up: handshakes happen in the connection's own thread, and every
connection has a timeout. (prometheus_client's own TLS does the handshake in the accepting thread.)
"""

from __future__ import annotations

import socket
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

CONNECTION_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where certificate chain and key are; both are replaced under a running agent."""

    certificate: Path
    key: Path

    def stamp(self) -> tuple[int, int]:
        """Return what changes when a file is replaced; raise OSError where one is missing."""
        return self.certificate.stat().st_mtime_ns, self.key.stat().st_mtime_ns


class _Handler(WSGIRequestHandler):
    timeout = int(CONNECTION_TIMEOUT_S)

    def log_message(self, *_: object) -> None:
        """Scrapes are not worth a line."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    tls: _ServerTls | None = None

    def get_request(self) -> tuple[socket.socket, object]:
        if self.tls is not None:
            self.tls.refresh()
        return super().get_request()

    def handle_error(self, *_: object) -> None:
        """A client that hangs up or speaks no TLS is none of our business."""


class _Server6(_Server):
    address_family = socket.AF_INET6


class _ServerTls:
    """The context of the listening socket; a renewed certificate is loaded with the next connection."""

    def __init__(self, files: TlsFiles) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._files = files
        self._seen = files.stamp()
        self.context.load_cert_chain(files.certificate, files.key)

    def refresh(self) -> None:
        """Load the files where they changed; half-written ones leave the old certificate serving."""
        try:
            stamp = self._files.stamp()
            if stamp != self._seen:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._files.certificate, self._files.key)
                self.context.load_cert_chain(self._files.certificate, self._files.key)
                self._seen = stamp
        except OSError:
            return


def start_metrics_server(
    registry: CollectorRegistry, host: str, port: int, files: TlsFiles | None = None
) -> tuple[WSGIServer, threading.Thread]:
    """Begin to serve; raise OSError where the port is taken or a file cannot be read."""
    kind = _Server6 if ":" in host else _Server
    tls = None if files is None else _ServerTls(files)
    address = host or "0.0.0.0"  # noqa: S104 - Prometheus scrapes from other nodes
    server = make_server(address, port, make_wsgi_app(registry), kind, _Handler)
    if tls is not None:
        server.tls = tls
        server.socket = tls.context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    return server, thread
