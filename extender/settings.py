"""Settings: frozen at start, read from the environment (``TANGRAM_...``) and one optional YAML file.

The environment wins over the file. Every problem is reported at once, with the name that the operator typed. Seconds
and bytes are in the names.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from extender.admission_settings import AdmissionSettings
from extender.deployment_settings import DeploymentSettings
from extender.history_settings import HistorySettings
from extender.mix_file import read_mix
from scoring.errors import InvalidPolicy
from scoring.registry import DEFAULT_POLICY, build_policies

ENVIRONMENT_PREFIX = "TANGRAM_"
FILE_VARIABLE = "TANGRAM_CONFIG"


class InvalidSettings(ValueError):
    """Settings cannot be understood; ``problems`` lists every fault, one sentence each."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__("settings: " + "; ".join(problems))


class Settings(BaseSettings):
    """Everything that an operator can set.

    ``prefix``                domain of resources and annotations
    ``api_server``            plain address of the API server; empty: that of the pod's own cluster
    ``kubeconfig``            file that says how to reach the API server, for running outside a cluster
    ``bind_deadline_s``       a bind answers within this; keep it below the scheduler's ``httpTimeout`` and the lease
    ``kube_timeout_s``        one call to the API server; a page of a list has longer
    ``kube_strict_x509``      False takes API server certificates without key identifiers, as older clusters have them
    ``unknown_settle_s``      a bind without an answer may land for so long; a later read without a node frees it
    ``stale_after_s``         a node whose last report is older takes nothing new
    ``settle_s``              freshly placed pods count as load for so long, until NVML shows them
    ``load_average_s``        time constant of the average of utilisation
    ``admission``             what the webhooks do with pods; see ``AdmissionSettings``
    ``deployment``            listeners, lease and identities of a replica in its cluster; see ``DeploymentSettings``
    ``history``               for how long explanations last, and where; see ``HistorySettings``
    ``mix_file``              mix of request shapes to plan for until enough pods were seen; see ``extender.mix_file``
    ``helper``                whether the helpers in C are used where they were built; answers are the same
    ``reports_wait_s``        after a start, decisions wait at most so long for the nodes known to have devices
    """

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX, frozen=True, extra="forbid", env_nested_delimiter="__"
    )

    prefix: str = Field("tangram.dev", pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$")
    host: str = "127.0.0.1"
    port: int = Field(8270, ge=0, le=65_535)
    api_server: str = Field("", pattern=r"^(https?://\S+)?$")
    kubeconfig: str = ""
    log_level: str = Field("info", pattern="^(debug|info|warning|error)$")

    max_scheduler_body_bytes: int = Field(8 * 2**20, ge=1024, le=2**30)
    max_report_body_bytes: int = Field(2**20, ge=1024, le=2**30)
    max_nodes: int = Field(20_000, ge=1, le=200_000)

    kube_timeout_s: float = Field(1.5, gt=0, le=60)
    kube_strict_x509: bool = True
    bind_deadline_s: float = Field(4.0, gt=0, le=60)
    bind_reads: int = Field(3, ge=1, le=20)
    unknown_settle_s: float = Field(30.0, gt=0, le=600)
    settle_interval_s: float = Field(2.0, gt=0, le=60)

    heartbeat_s: float = Field(15.0, gt=0, le=300)
    stale_after_s: float = Field(45.0, gt=0, le=3600)
    settle_s: float = Field(30.0, ge=0, le=600)
    load_average_s: float = Field(30.0, gt=0, le=3600)
    reports_wait_s: float = Field(60.0, ge=0, le=3600)

    advertise_interval_s: float = Field(1.0, gt=0, le=300)
    advertise_per_round: int = Field(20, ge=1, le=1000)
    advertise_backoff_max_s: float = Field(60.0, gt=0, le=3600)
    wake_interval_s: float = Field(5.0, gt=0, le=300)

    decisions_kept: int = Field(1000, ge=1, le=100_000)
    evaluations_kept: int = Field(256, ge=1, le=10_000)
    tombstones_kept: int = Field(4096, ge=16, le=1_000_000)

    policy: str = DEFAULT_POLICY
    policies: dict[str, dict[str, float]] = Field(default_factory=dict)
    mix_file: str = ""
    helper: bool = True

    admission: AdmissionSettings = Field(default_factory=AdmissionSettings)
    deployment: DeploymentSettings = Field(default_factory=DeploymentSettings)
    history: HistorySettings = Field(default_factory=HistorySettings)

    @property
    def key_prefix(self) -> str:
        """Return what our resources and annotations begin with, slash included."""
        return f"{self.prefix}/"

    @field_validator("policies")
    @classmethod
    def _policies_can_be_built(cls, profiles: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
        try:
            build_policies(profiles)
        except InvalidPolicy as error:
            raise ValueError("; ".join(error.problems)) from error
        return profiles

    @field_validator("mix_file")
    @classmethod
    def _mix_can_be_read(cls, file: str) -> str:
        if file:
            read_mix(Path(file))
        return file

    @model_validator(mode="after")
    def _values_agree(self) -> Settings:
        problems = []
        known = build_policies(self.policies)
        if self.policy not in known:
            problems.append(f"policy: found {self.policy!r}, valid are {', '.join(sorted(known))}")
        if self.stale_after_s <= self.heartbeat_s:
            problems.append(
                f"stale_after_s: found {self.stale_after_s}, valid is more than heartbeat_s {self.heartbeat_s}"
            )
        if self.bind_deadline_s <= self.kube_timeout_s:
            problems.append(
                f"bind_deadline_s: found {self.bind_deadline_s}, valid is more than kube_timeout_s, "
                f"which is {self.kube_timeout_s}"
            )
        if self.kubeconfig and self.api_server:
            problems.append(f"kubeconfig: found {self.kubeconfig!r} beside api_server {self.api_server}, valid is one")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Let the environment win over what the file said (``init_settings`` carries the file)."""
        del settings_cls, dotenv_settings, file_secret_settings
        return env_settings, init_settings


def load_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """Return the settings; the file is the one that ``TANGRAM_CONFIG`` names.

    ``environment`` is looked at for names only (the values come from the process). Raises InvalidSettings with every
    problem: values out of range, unknown names in the file or in the environment, a file that is not a YAML mapping.
    """
    environment = os.environ if environment is None else environment
    path = environment.get(FILE_VARIABLE, "")
    from_file, problems = _read_file(Path(path)) if path else ({}, [])
    problems += _unknown_names(environment)
    try:
        settings = Settings(**from_file)  # type: ignore[arg-type]
    except ValidationError as error:
        problems += [_problem(detail["loc"], detail["msg"], detail.get("input")) for detail in error.errors()]
    if problems:
        raise InvalidSettings(tuple(problems))
    return settings


def _read_file(path: Path) -> tuple[dict[str, object], list[str]]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        return {}, [f"{FILE_VARIABLE}: {path} cannot be read: {error}"]
    if content is None:
        return {}, []
    if not isinstance(content, dict):
        return {}, [f"{FILE_VARIABLE}: {path} holds a {type(content).__name__}, valid is a mapping of settings"]
    return {str(key): value for key, value in content.items()}, []


def _unknown_names(environment: Mapping[str, str]) -> list[str]:
    known = {f"{ENVIRONMENT_PREFIX}{name}".upper() for name in Settings.model_fields} | {FILE_VARIABLE}
    problems = []
    for name in environment:
        if name.upper().startswith(ENVIRONMENT_PREFIX) and name.upper().split("__")[0] not in known:
            near = difflib.get_close_matches(name.upper(), known, 1)
            problems.append(f"{name}: no such setting" + (f", the nearest is {near[0]}" if near else ""))
    return problems


def _problem(location: tuple[int | str, ...], message: str, found: object) -> str:
    name = ".".join(str(part) for part in location)
    if not name:
        return message.removeprefix("Value error, ")
    if message == "Extra inputs are not permitted":
        near = difflib.get_close_matches(name, Settings.model_fields, 1)
        return f"{name}: no such setting" + (f", the nearest is {near[0]}" if near else "")
    return f"{name}: found {found!r}; {message.removeprefix('Value error, ')}"
