"""The user's own cluster access, by the official client: tokens, port-forwards, and annotations of nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from extender.cli.arguments import Access
from extender.cli.problems import NOT_FOUND, NOT_REACHED, WRONG_USAGE, CliProblem

CoreApi: TypeAlias = Any
"""The official client's CoreV1Api, and what it answers; it has no types."""

_TIMEOUT_S = 15
_CONFLICT = 409
_MERGE_PATCH = "application/merge-patch+json"
_TRIES = 4


def core_api(access: Access) -> CoreApi:
    """Return the official client's CoreV1Api for the kubeconfig, or for ``--api-server``. Raises CliProblem."""
    from kubernetes import client, config

    if access.api_server:
        configuration = client.Configuration()
        configuration.host = access.api_server
        configuration.retries = 1
        return client.CoreV1Api(client.ApiClient(configuration))
    try:
        return client.CoreV1Api(
            config.new_client_from_config(  # type: ignore[no-untyped-call]
                access.kubeconfig or None, access.context or None, persist_config=False
            )
        )
    except (config.ConfigException, OSError) as error:
        where = access.kubeconfig or "the default kubeconfig"
        raise CliProblem(f"{where} cannot be used: {error}; or give the extender's address with --url") from error


def called(what: str, call: Callable[..., CoreApi], *arguments: object, **options: object) -> CoreApi:
    """Return the answer of one call of the official client; CliProblem in our words where there is none."""
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    try:
        return call(*arguments, _request_timeout=_TIMEOUT_S, **options)
    except ApiException as error:
        status = NOT_FOUND if error.status == 404 else NOT_REACHED
        raise CliProblem(f"{what}: the API server answered {error.status} {error.reason}", status) from error
    except (HTTPError, OSError) as error:
        raise CliProblem(f"{what}: the API server does not answer: {error}") from error


def change_cordon(api: CoreApi, node: str, uuid: str, key: str, *, cordon: bool) -> list[str]:
    """Add a device to the node's list of cordoned ones, or take it out; return the list as it is then.

    Nobody else's change is lost: a write names the version that it read, and is tried again where that is outdated.
    """
    from kubernetes.client.exceptions import ApiException

    for _ in range(_TRIES):
        metadata = called(f"node {node}", api.read_node, node).metadata
        before = [part.strip() for part in (metadata.annotations or {}).get(key, "").split(",") if part.strip()]
        after = [each for each in before if each != uuid] + ([uuid] if cordon else [])
        if set(after) == set(before):
            return before
        patch = {
            "metadata": {"resourceVersion": metadata.resource_version, "annotations": {key: ",".join(after) or None}}
        }
        try:
            api.patch_node(node, patch, _request_timeout=_TIMEOUT_S, _content_type=_MERGE_PATCH)
        except ApiException as error:
            if error.status == _CONFLICT:
                continue
            allowed = "you need the right to patch nodes" if error.status == 403 else error.reason
            raise CliProblem(f"node {node}: the API server answered {error.status}: {allowed}") from error
        return after
    raise CliProblem(f"node {node} keeps changing while it is written; try again")


def check_uuid(uuid: str) -> str:
    """Return a device's UUID; CliProblem for what cannot be one."""
    if not uuid.startswith(("GPU-", "MIG-")) or "," in uuid or len(uuid) > 128:
        raise CliProblem(
            f"device: found {uuid!r}, valid is a UUID such as GPU-8f6d...; `tangram top` lists them", WRONG_USAGE
        )
    return uuid
