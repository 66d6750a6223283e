"""A small client for tests: paths and plain JSON objects, errors with the API server's own words.

Test tooling does not go through the product's client, so that a mistake there cannot hide itself. JSON objects of the
Kubernetes API are `dict[str, Any]` here and nowhere else is that type needed.
"""

import ssl
import time
from collections.abc import Callable
from enum import StrEnum
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx2

from tests.controlplane.access import Endpoint

Json = dict[str, Any]
_Answer = TypeVar("_Answer")
_TIMEOUT_S = 10.0
_POLL_S = 0.05


class PatchKind(StrEnum):
    """How the API server reads the body of a patch."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


class ApiError(RuntimeError):
    """The API server refused; `status` is the HTTP status, `reason` and `message` are its own."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class Api:
    """One user's connection to one API server; safe to use from several threads."""

    def __init__(self, endpoint: Endpoint) -> None:
        headers = {"Authorization": f"Bearer {endpoint.token}"}
        self._client = httpx2.Client(
            base_url=endpoint.url, headers=headers, verify=trust(endpoint), timeout=_TIMEOUT_S, trust_env=False
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def get(self, path: str, **query: str) -> Json:
        """Read one object or one list."""
        return self.request("GET", path, query=query)

    def items(self, path: str, **query: str) -> list[Json]:
        """Read the items of a list."""
        found: list[Json] = self.get(path, **query)["items"]
        return found

    def create(self, path: str, body: Json) -> Json:
        """Create an object below the path of its collection."""
        return self.request("POST", path, body=body)

    def replace(self, path: str, body: Json) -> Json:
        """Write a whole object."""
        return self.request("PUT", path, body=body)

    def patch(self, path: str, body: Json | list[Json], kind: PatchKind = PatchKind.MERGE) -> Json:
        """Change an object, or create it with PatchKind.APPLY."""
        query = {"fieldManager": "tangram-tests", "force": "true"} if kind is PatchKind.APPLY else {}
        return self.request("PATCH", path, body=body, query=query, content_type=kind.value)

    def delete(self, path: str, *, grace_s: int | None = None) -> Json:
        """Delete an object; `grace_s` of 0 deletes a pod at once, None keeps its own grace period."""
        query = {} if grace_s is None else {"gracePeriodSeconds": str(grace_s)}
        return self.request("DELETE", path, query=query)

    def exists(self, path: str) -> bool:
        """Tell whether an object exists."""
        try:
            self.get(path)
        except ApiError as refusal:
            if refusal.status == httpx2.codes.NOT_FOUND:
                return False
            raise
        return True

    def is_ready(self) -> bool:
        """Tell whether the API server calls itself ready."""
        return self._client.get("/readyz").is_success

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Json | list[Json] | None = None,
        query: dict[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        """Send one request and return the answer's object. Raises ApiError unless the status is 2xx."""
        answer = self._client.request(
            method,
            path,
            params=query or {},
            json=body,
            headers={} if body is None else {"Content-Type": content_type},
        )
        if not answer.is_success:
            raise _refusal(answer)
        found: Json = answer.json()
        return found


def trust(endpoint: Endpoint) -> ssl.SSLContext | bool:
    """Return what to check the server's certificate with."""
    return True if endpoint.authority is None else ssl.create_default_context(cafile=str(endpoint.authority))


def wait_for(what: str, probe: Callable[[], _Answer | None], *, within_s: float = 20.0) -> _Answer:
    """Call `probe` until it returns something true and return that. Raises TimeoutError with the last thing seen."""
    deadline = time.monotonic() + within_s
    while not (found := probe()):
        if time.monotonic() > deadline:
            message = f"not seen within {within_s:g} s: {what}; last seen: {found!r}"
            raise TimeoutError(message)
        time.sleep(_POLL_S)
    return found


def _refusal(answer: httpx2.Response) -> ApiError:
    try:
        body: Json = answer.json()
    except ValueError:
        return ApiError(answer.status_code, "", answer.text[:1000])
    return ApiError(answer.status_code, str(body.get("reason", "")), str(body.get("message", "")))
