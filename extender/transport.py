"""Bytes to the API server and back: one place for timeouts, limits, and what a failure means.

Used by ``extender.kube`` alone, which builds the connection pool from the official client's configuration. What a
failure says about the request is decided here, once: *nothing was sent* (KubeUnreachable), *sent, no answer*
(OutcomeUnknown), *a definite no* (KubeRefused). Every call has a timeout and every body a limit. Blocking: runs in
worker threads and the reflector's threads, never on the event loop.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

import msgspec
import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    MaxRetryError,
    NewConnectionError,
    ProxyError,
    SSLError,
)

from extender.errors import KubeRefused, KubeUnreachable, OutcomeUnknown, UnreadableAnswer

_NOT_SENT = (ConnectTimeoutError, NewConnectionError, ProxyError)
_CHUNK_BYTES = 64 * 1024
_ERROR_BODY_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of every call.

    ``connect_timeout_s`` and ``read_timeout_s`` are seconds for connecting and between two packets, ``list_timeout_s``
    the same for a page of a list, which the API server may have to gather first; ``answer_bytes`` bounds one answer,
    ``line_bytes`` one watch event: etcd refuses objects above 1.5 MiB.
    """

    connect_timeout_s: float = 3.0
    read_timeout_s: float = 10.0
    list_timeout_s: float = 10.0
    answer_bytes: int = 64 * 1024 * 1024
    line_bytes: int = 8 * 1024 * 1024


class _Status(msgspec.Struct, frozen=True):
    """The parts of a Kubernetes Status object that a person reads."""

    reason: str = ""
    message: str = ""
    code: int = 0


class Transport:
    """Sends one request at a time on a thread-safe pool of connections to one API server.

    ``authorise`` returns the headers that prove who we are; it is asked before each request, so that a rotated token is
    taken up. ``monotonic`` is the clock for deadlines, in seconds.
    """

    def __init__(
        self,
        pool: urllib3.PoolManager,
        url: str,
        authorise: Callable[[], Mapping[str, str]],
        limits: Limits = Limits(),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self._pool = pool
        self._url = url.rstrip("/")
        self._authorise = authorise
        self._monotonic = monotonic

    def get(self, path: str, query: Mapping[str, str] | None = None, read_timeout_s: float | None = None) -> bytes:
        """Read; a connection that broke is tried once more, as nothing can happen twice.

        ``read_timeout_s`` stands in for the limit of that name. Raises KubeRefused for every status but 2xx,
        KubeUnreachable, OutcomeUnknown, UnreadableAnswer.
        """
        once_more = urllib3.Retry(total=1, redirect=0, status=0, other=0, backoff_factor=0)
        timeout = urllib3.Timeout(
            connect=self.limits.connect_timeout_s, read=read_timeout_s or self.limits.read_timeout_s
        )
        response = self._request("GET", path, query, retries=once_more, timeout=timeout)
        return self._answer(response)

    def send(
        self,
        method: str,
        path: str,
        body: bytes,
        content_type: str = "application/json",
        deadline_s: float | None = None,
    ) -> bytes:
        """Write once, without a second try, before ``deadline_s`` (on this transport's clock) if one is given.

        Raises KubeUnreachable when nothing was sent; KubeRefused for every status but 2xx; OutcomeUnknown when the
        request may have been carried out all the same.
        """
        timeout = self._timeout(deadline_s=deadline_s)
        response = self._request(
            method, path, None, body=body, content_type=content_type, retries=False, timeout=timeout
        )
        return self._answer(response)

    def watch(self, path: str, query: Mapping[str, str], read_timeout_s: float) -> WatchStream:
        """Open a watch; silence longer than ``read_timeout_s`` ends it. Raises as ``get`` does."""
        timeout = urllib3.Timeout(connect=self.limits.connect_timeout_s, read=read_timeout_s)
        response = self._request("GET", path, query, retries=False, timeout=timeout)
        if not _is_success(response.status):
            raise _refusal(response)
        return WatchStream(response, self.limits.line_bytes)

    def close(self) -> None:
        """Close idle connections."""
        self._pool.clear()

    def _timeout(self, deadline_s: float | None = None) -> urllib3.Timeout:
        total_s = None if deadline_s is None else deadline_s - self._monotonic()
        if total_s is not None and total_s <= 0:
            msg = "the deadline had passed before the request could be sent"
            raise KubeUnreachable(msg)
        return urllib3.Timeout(total=total_s, connect=self.limits.connect_timeout_s, read=self.limits.read_timeout_s)

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        *,
        retries: urllib3.Retry | bool,
        timeout: urllib3.Timeout,
        body: bytes | None = None,
        content_type: str | None = None,
    ) -> urllib3.BaseHTTPResponse:
        url = f"{self._url}{path}?{urlencode(query)}" if query else f"{self._url}{path}"
        headers = {"Accept": "application/json", **self._authorise()}
        if content_type is not None:
            headers["Content-Type"] = content_type
        try:
            return self._pool.request(
                method,
                url,
                body=body,
                headers=headers,
                timeout=timeout,
                retries=retries,
                redirect=False,
                preload_content=False,
            )
        except HTTPError as error:
            raise _failure(error, f"{method} {path}") from error

    def _answer(self, response: urllib3.BaseHTTPResponse) -> bytes:
        """Return the whole body of a success; only then does the connection go back to the pool."""
        if not _is_success(response.status):
            raise _refusal(response)
        limit = self.limits.answer_bytes
        try:
            body = response.read(limit + 1)
        except HTTPError as error:
            response.close()
            msg = "the connection broke in the middle of an answer"
            raise OutcomeUnknown(msg) from error
        if len(body) > limit:
            response.close()
            msg = f"an answer of more than {limit} bytes"
            raise UnreadableAnswer(msg)
        response.release_conn()
        return body


class WatchStream:
    """The open answer of a watch: batches of whole lines, in the order and grouping in which they arrived."""

    def __init__(self, response: urllib3.BaseHTTPResponse, line_bytes: int) -> None:
        self._response = response
        self._line_bytes = line_bytes

    def __iter__(self) -> Iterator[list[bytes]]:
        """Yield lines until the server ends the watch.

        Raises OutcomeUnknown when the connection breaks or stays silent for too long, UnreadableAnswer for a line above
        the limit.
        """
        rest = b""
        try:
            for chunk in self._response.stream(_CHUNK_BYTES):
                *lines, rest = (rest + chunk).split(b"\n")
                if lines:
                    yield lines
                if len(rest) > self._line_bytes:
                    msg = f"a watch event of more than {self._line_bytes} bytes"
                    raise UnreadableAnswer(msg)
        except (HTTPError, OSError, ValueError) as error:
            msg = "the watch broke or stayed silent for too long"
            raise OutcomeUnknown(msg) from error

    def interrupt(self) -> None:
        """End the watch from another thread: its reader wakes at once."""
        try:
            self._response.shutdown()
        except (ValueError, RuntimeError, OSError):
            return  # Its reader has closed it already.

    def close(self) -> None:
        """Close the connection; for the reader's own thread."""
        self._response.close()


def _is_success(status: int) -> bool:
    return 200 <= status < 300


def _failure(error: HTTPError, request: str) -> KubeUnreachable | OutcomeUnknown:
    cause = error.reason if isinstance(error, MaxRetryError) else error
    if isinstance(cause, _NOT_SENT) or _is_handshake_failure(cause):
        return KubeUnreachable(f"{request}: no connection ({cause})")
    return OutcomeUnknown(f"{request}: no answer ({cause})")


def _is_handshake_failure(cause: Exception | None) -> bool:
    """Return whether a certificate was refused; other TLS errors may come after the request was sent."""
    return isinstance(cause, SSLError) and any(isinstance(arg, ssl.SSLCertVerificationError) for arg in cause.args)


def _refusal(response: urllib3.BaseHTTPResponse) -> KubeRefused:
    """Return the refusal in the words of the server's Status object where it sent one."""
    message = ""
    try:
        message = msgspec.json.decode(response.read(_ERROR_BODY_BYTES), type=_Status).message
    except (HTTPError, msgspec.DecodeError, RecursionError):
        message = ""  # The status line alone has to do.
    finally:
        response.close()
    return KubeRefused(response.status, message or response.reason or "no reason given")
