"""What an operator decides about the door: which scheduler, which runtime class, who injects, which pods are routed."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator

from extender.allocation import Injector

_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"


class AdmissionSettings(BaseModel):
    """Settings of the admission webhooks.

    ``scheduler_name``         the scheduler that pods are given to; in stand-alone mode the name of the existing one
    ``other_schedulers``       names that a pod may carry instead: further profiles that call the extender too
    ``runtime_class``          the RuntimeClass that reads NVIDIA_VISIBLE_DEVICES; empty: that is the nodes' default
    ``other_runtime_classes``  names that a pod may carry instead
    ``injector``               what hands devices to containers, the same for the whole cluster
    ``mps_directory``          where the agents' MPS daemons have their directories on every node
    ``plugin_pods``            whether pods that ask for ``nvidia.com/*`` are given to our scheduler
    ``routed_namespaces``      all pods there, CPU-only ones included, are given to our scheduler
    ``routed_taints``          so are pods that tolerate a taint of one of these keys by name
    ``max_body_bytes``         an AdmissionReview that is longer is refused
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    scheduler_name: str = Field(default="tangram-scheduler", pattern=_NAME, max_length=63)
    other_schedulers: tuple[str, ...] = ()
    runtime_class: str = Field(default="nvidia", pattern=rf"{_NAME}|^$", max_length=63)
    other_runtime_classes: tuple[str, ...] = ("nvidia-cdi", "nvidia-legacy")
    injector: Injector = Injector.ENVIRONMENT
    mps_directory: str = Field(default="/run/tangram/mps", pattern=r"^(/[-\w.]+)+$", max_length=128)
    plugin_pods: bool = True
    routed_namespaces: tuple[str, ...] = ()
    routed_taints: tuple[str, ...] = ()
    max_body_bytes: int = Field(default=8 * 2**20, ge=1024, le=2**30)

    @field_validator("routed_namespaces", "routed_taints", "other_schedulers", "other_runtime_classes")
    @classmethod
    def _names_say_something(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not name or name != name.strip():
                msg = f"found {name!r}, valid is a name without blanks around it"
                raise ValueError(msg)
        return names

    @property
    def schedulers(self) -> tuple[str, ...]:
        """Return the scheduler names that a pod of ours may carry."""
        return (self.scheduler_name, *self.other_schedulers)

    @property
    def runtime_classes(self) -> tuple[str, ...]:
        """Return the RuntimeClass names that a pod of ours may carry."""
        own = (self.runtime_class,) if self.runtime_class else ()
        return (*own, *self.other_runtime_classes)
