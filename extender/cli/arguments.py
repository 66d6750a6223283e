"""Options that every command takes, wherever they stand: ``tangram top -o json`` and ``tangram -o json top``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

EVERYWHERE: Mapping[str, str] = {
    "--url": "--url",
    "--token": "--token",
    "--ca": "--ca",
    "--kubeconfig": "--kubeconfig",
    "--context": "--context",
    "--api-server": "--api-server",
    "--system-namespace": "--system-namespace",
    "--output": "--output",
    "-o": "--output",
}
"""Option as typed -> its long name; each takes a value."""

ENVIRONMENT = ("TANGRAM_URL", "TANGRAM_TOKEN", "TANGRAM_CA")
"""Variables of the command line; no settings of the extender."""


class Output(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Access:
    """How the extender and the API server are reached; empty means not given.

    ``url``         the extender's people port; else a port-forward to a pod in ``system_namespace``
    ``token``       bearer token for pod names; with a port-forward one is requested
    ``ca``          file with the authority of the extender's certificate
    ``api_server``  plain address of the API server instead of a kubeconfig, for trials
    """

    url: str = ""
    token: str = ""
    ca: str = ""
    kubeconfig: str = ""
    context: str = ""
    api_server: str = ""
    system_namespace: str = "tangram-system"
    output: Output = Output.TEXT


def hoisted(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with those that every command takes in front; nothing behind ``--`` is touched."""
    front: list[str] = []
    rest: list[str] = []
    left = list(arguments)
    while left:
        argument = left.pop(0)
        if argument == "--":
            rest += [argument, *left]
            break
        name, is_joined, value = argument.partition("=")
        if name in EVERYWHERE and (is_joined or left):
            front += [EVERYWHERE[name], value if is_joined else left.pop(0)]
        else:
            rest.append(argument)
    return [*front, *rest]
