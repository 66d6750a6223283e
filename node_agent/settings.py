"""The agent's settings, from ``TANGRAM_AGENT_<NAME>`` variables and command-line overrides; every problem at once.

Plain msgspec instead of pydantic-settings: the latter costs 13 MiB on every GPU node (measured, PSS), a fifth of the
agent's budget.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, get_type_hints

import msgspec

PREFIX = "TANGRAM_AGENT_"

Positive = Annotated[float, msgspec.Meta(gt=0, le=3600)]


class SettingsError(ValueError):
    """One or more settings cannot be used; the message has a line for each."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator can set. Durations are seconds.

    ``node``             this node's name, as Kubernetes has it (from the downward API)
    ``urls``             comma list of the extender's base URLs; every address behind each name gets the reports
    ``sweep_s``          how often the GPUs are read; ``deadline_s`` how long one sweep may take
    ``suspect_s``, ``rest_s``, ``probation_s``  quiet times after which a device leaves these states
    ``metrics_port``     0 leaves the exporter out
    ``metrics_cert_file``, ``metrics_key_file``   both for metrics over TLS, or none
    ``simulate``         a description file: no GPU is touched
    """

    node: str = ""
    urls: str = ""
    token_file: str = ""
    ca_file: str = ""
    sweep_s: Positive = 2.0
    deadline_s: Positive = 10.0
    heartbeat_s: Positive = 15.0
    push_timeout_s: Positive = 5.0
    suspect_s: Positive = 300.0
    rest_s: Positive = 60.0
    probation_s: Positive = 120.0
    metrics_host: str = ""
    metrics_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 9464
    metrics_cert_file: str = ""
    metrics_key_file: str = ""
    health_file: str = ""
    pod_resources_socket: str = "/var/lib/kubelet/pod-resources/kubelet.sock"
    proc_root: str = "/proc"
    sysfs_root: str = "/sys"
    mps_devices: str = ""
    mps_root: str = "/run/tangram/mps"
    mps_control: str = "nvidia-cuda-mps-control"
    simulate: str = ""
    log_level: str = "INFO"

    def token_path(self) -> Path | None:
        """Return where the token is, None for no token."""
        return Path(self.token_file) if self.token_file else None

    def ca_path(self) -> Path | None:
        """Return where the certificate authorities are, None for the system's."""
        return Path(self.ca_file) if self.ca_file else None

    def metrics_tls(self) -> tuple[Path, Path] | None:
        """Return the metrics' certificate and key, None for plain HTTP; raise SettingsError where one is missing."""
        if bool(self.metrics_cert_file) != bool(self.metrics_key_file):
            raise SettingsError(f"{PREFIX}METRICS_CERT_FILE and {PREFIX}METRICS_KEY_FILE: set both or none")
        return (Path(self.metrics_cert_file), Path(self.metrics_key_file)) if self.metrics_cert_file else None

    def url_list(self) -> list[str]:
        """Return the URLs, blanks and empty parts left out."""
        return [part.strip() for part in self.urls.split(",") if part.strip()]

    def node_name(self) -> str:
        """Return the node's name, the host's where none is set."""
        return self.node or socket.gethostname()


def load_settings(environ: Mapping[str, str] | None = None, overrides: Mapping[str, object] | None = None) -> Settings:
    """Read all settings; raise SettingsError that names every variable that is unknown or cannot be used."""
    source = os.environ if environ is None else environ
    raw: dict[str, object] = {
        key.removeprefix(PREFIX).lower(): value for key, value in source.items() if key.startswith(PREFIX)
    }
    raw.update(overrides or {})
    problems: list[str] = []
    types = get_type_hints(Settings, include_extras=True)
    for name, value in list(raw.items()):
        problem = _problem(name, value, types)
        if problem:
            problems.append(problem)
    if problems:
        raise SettingsError("\n".join(problems))
    return msgspec.convert(raw, Settings, strict=False)


def _problem(name: str, value: object, types: Mapping[str, object]) -> str | None:
    if name not in types:
        return f"{PREFIX}{name.upper()}: no such setting, valid: {', '.join(sorted(types))}"
    try:
        msgspec.convert(value, types[name], strict=False)
    except msgspec.ValidationError as problem:
        return f"{PREFIX}{name.upper()}: {value!r}: {problem}"
    return None
