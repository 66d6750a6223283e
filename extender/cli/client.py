"""Asks the extender: one connection, JSON back, and a message that says what to do where it cannot be reached."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

from extender.cli.arguments import Access
from extender.cli.problems import NOT_FOUND, NOT_REACHED, WRONG_USAGE, CliProblem

TIMEOUT_S = 30.0
_MOST_BYTES = 256 * 2**20
_HOW = "give its address with --url or TANGRAM_URL, or a kubeconfig of a cluster where Tangram is installed"

Connect = Callable[[], http.client.HTTPConnection]
Json: TypeAlias = Any
"""What the extender answers; its shape is that of ``extender.routes``."""


class Client:
    """Reads from one extender; ``where`` names it in messages."""

    def __init__(self, connect: Connect, where: str, token: str = "") -> None:
        self._connect = connect
        self._where = where
        self._headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})

    def json(self, *path: str, query: Mapping[str, object] | None = None) -> Json:
        """Return what a path answers; parts are quoted. Raises CliProblem."""
        status, body = self._get(path, query or {})
        try:
            found = json.loads(body)
        except ValueError as error:
            raise CliProblem(
                f"{self._where} answered {status} with something that is not JSON: is it an extender?"
            ) from error
        if status == http.client.OK:
            return found
        message = found.get("error", f"HTTP {status}") if isinstance(found, dict) else f"HTTP {status}"
        raise CliProblem(message, NOT_FOUND if status == http.client.NOT_FOUND else NOT_REACHED)

    def text(self, *path: str) -> str:
        """Return what a path answers, whatever the status. Raises CliProblem where there is no answer."""
        return self._get(path, {})[1].decode("utf-8", "replace")

    def _get(self, path: tuple[str, ...], query: Mapping[str, object]) -> tuple[int, bytes]:
        target = "/" + "/".join(quote(part, safe="") for part in path)
        if query:
            target += "?" + urlencode({name: str(value) for name, value in query.items()})
        connection = None
        try:
            connection = self._connect()
            connection.request("GET", target, headers=self._headers)
            answer = connection.getresponse()
            return answer.status, answer.read(_MOST_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise CliProblem(f"the extender at {self._where} does not answer: {_reason(error)}; {_HOW}") from error
        finally:
            if connection is not None:
                connection.close()


def client_for(access: Access) -> Client:
    """Return a client for what the options say: an address, or a port-forward with the kubeconfig."""
    if access.url:
        return _client_at(access)
    from extender.cli.tunnel import open_tunnel

    return open_tunnel(access)


def tls_context(ca: str) -> ssl.SSLContext:
    """Return a context that trusts the given authority, or the system's; CliProblem for a file that is none."""
    try:
        return ssl.create_default_context(cafile=ca or None)
    except (OSError, ssl.SSLError) as error:
        raise CliProblem(f"--ca {ca}: {error}", WRONG_USAGE) from error


def _client_at(access: Access) -> Client:
    parts = urlsplit(access.url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts.scheme not in ("http", "https") or not host:
        raise CliProblem(f"--url: found {access.url!r}, valid is http://HOST:PORT or https://HOST:PORT", WRONG_USAGE)
    if parts.scheme == "http":
        return Client(lambda: http.client.HTTPConnection(host, port, timeout=TIMEOUT_S), access.url, access.token)
    context = tls_context(access.ca)
    return Client(
        lambda: http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context), access.url, access.token
    )


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
