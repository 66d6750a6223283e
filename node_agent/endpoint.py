"""Where reports go, and one keep-alive connection there: plain HTTP/1.1 of the standard library, TLS, bearer token.

Certificate authorities and the token are read from disk again for every new connection and every push: both are rotated
under a running agent. The connection goes to one address of a name and verifies the certificate against the name.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from node_agent.report import Answer, Report

REPORTS_PATH = "/v1/reports"
MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""A node has at most a few hundred shares of some 250 bytes; a larger answer is not ours."""


class PushError(Exception):
    """A push that was not taken; ``kind`` is a closed word for counting, the message says what happened."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The extender's base URL, taken apart."""

    host: str
    port: int
    is_tls: bool
    path: str

    @classmethod
    def parse(cls, url: str) -> Endpoint:
        """Read a base URL; raise ValueError saying what is wrong with it."""
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"url: {url!r}, must look like http://name:port or https://name:port")
        try:
            port = parts.port
        except ValueError as problem:
            raise ValueError(f"url: {url!r}: {problem}") from problem
        default = 443 if parts.scheme == "https" else 80
        return cls(parts.hostname, port or default, parts.scheme == "https", parts.path.rstrip("/") + REPORTS_PATH)

    def addresses(self) -> list[str]:
        """Resolve the name to every address behind it, sorted; raise OSError where it does not resolve."""
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        return sorted({str(each[4][0]) for each in found})


@dataclass(frozen=True, slots=True)
class Credentials:
    """Files that prove who we are and whom we trust; read anew whenever they are used."""

    token_file: Path | None = None
    ca_file: Path | None = None

    def authorization(self) -> dict[str, str]:
        """Return the header that carries the token; raise PushError when the file cannot be read or is empty."""
        if self.token_file is None:
            return {}
        try:
            token = self.token_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as problem:
            raise PushError("token", f"token file {self.token_file}: {problem}") from problem
        if not token:
            raise PushError("token", f"token file {self.token_file} is empty")
        return {"Authorization": f"Bearer {token}"}

    def context(self) -> ssl.SSLContext:
        """Return a verifying TLS context with today's certificate authorities; raise PushError without them."""
        try:
            return ssl.create_default_context(cafile=None if self.ca_file is None else str(self.ca_file))
        except (OSError, ssl.SSLError) as problem:
            raise PushError("ca", f"certificate authority file {self.ca_file}: {problem}") from problem


class _AddressConnection(http.client.HTTPConnection):
    """Connects to one address, while the Host header and the certificate are for the name."""

    def __init__(self, endpoint: Endpoint, address: str, context: ssl.SSLContext | None, timeout_s: float) -> None:
        super().__init__(endpoint.host, endpoint.port, timeout=timeout_s)
        self._address = address
        self._context = context

    def connect(self) -> None:
        plain = socket.create_connection((self._address, self.port), self.timeout)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.sock = plain if self._context is None else self._context.wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise


class Connection:
    """One keep-alive connection to one replica; opened when first needed, and again after any failure."""

    def __init__(self, endpoint: Endpoint, address: str, credentials: Credentials, timeout_s: float) -> None:
        self._endpoint = endpoint
        self._address = address
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._open: _AddressConnection | None = None

    def push(self, report: Report) -> Answer:
        """Send one report and return the answer; raise PushError otherwise, with the connection closed."""
        headers = {"Content-Type": "application/json", **self._credentials.authorization()}
        body = msgspec.json.encode(report)
        try:
            status, content = self._exchange(body, headers)
        except (OSError, http.client.HTTPException, ValueError) as problem:
            self.close()
            raise PushError(_kind_of(problem), f"{self._address}: {type(problem).__name__}: {problem}") from problem
        if status != http.client.OK:
            self.close()
            words = content[:300].decode("utf-8", errors="replace")
            raise PushError(f"http_{status}", f"{self._address}: answered {status}: {words}")
        try:
            return msgspec.json.decode(content, type=Answer)
        except msgspec.MsgspecError as problem:
            self.close()
            raise PushError("answer", f"{self._address}: answer not understood: {problem}") from problem

    def close(self) -> None:
        """Close the connection if there is one."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _exchange(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        is_reused = self._open is not None
        try:
            return self._send(body, headers)
        except (ConnectionError, http.client.BadStatusLine):
            self.close()
            if not is_reused:
                raise
        # The other side had closed the kept connection meanwhile; a report is whole, so twice is harmless.
        return self._send(body, headers)

    def _send(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        if self._open is None:
            context = self._credentials.context() if self._endpoint.is_tls else None
            self._open = _AddressConnection(self._endpoint, self._address, context, self._timeout_s)
        self._open.request("POST", self._endpoint.path, body, headers)
        response = self._open.getresponse()
        content = response.read(MAX_ANSWER_BYTES + 1)
        if len(content) > MAX_ANSWER_BYTES:
            raise ValueError(f"answer is larger than {MAX_ANSWER_BYTES} bytes")
        if response.will_close:
            self.close()
        return response.status, content


def _kind_of(problem: Exception) -> str:
    match problem:
        case ssl.SSLCertVerificationError():
            return "certificate"
        case ssl.SSLError():
            return "tls"
        case TimeoutError():
            return "timeout"
        case ConnectionError():
            return "connection"
        case OSError():
            return "network"
        case _:
            return "protocol"
