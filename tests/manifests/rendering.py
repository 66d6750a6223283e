"""The chart as helm renders it, in every mode that is tested."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane.build import ensure
from tests.controlplane.modules import KUBERNETES_VERSION

Json = dict[str, Any]

ROOT = Path(__file__).parents[2]
CHART = ROOT / "manifests" / "chart"
INSTALL = ROOT / "manifests" / "install.yaml"
COPIED = ("dashboards/*.json", "alerts/*.rules.yaml")
"""What the chart carries a copy of, because a chart holds no file from outside its folder."""
NAMESPACE = "tangram-system"
VERSIONS = ("1.34", "1.35", "1.36")
MODES: Mapping[str, tuple[str, ...]] = {
    "paired": (),
    "stand-alone": ("mode=stand-alone",),
    "paired with cert-manager": ("certificates.source=cert-manager",),
    "stand-alone with cert-manager": ("mode=stand-alone", "certificates.source=cert-manager"),
    "everything": (
        "namespace.create=true",
        "monitoring.serviceMonitor=true",
        "monitoring.podMonitor=true",
        "monitoring.prometheusRule=true",
        "monitoring.dashboards.enabled=true",
        "runtimeClass.create=true",
        "agent.mps.devices={GPU-1}",
        "admission.routedNamespaces={batch}",
        "admission.routedTaints={nvidia.com/gpu}",
        "scheduler.otherNames={second}",
        "scheduler.everyPod=false",
        "injector=nri",
        "history.persistence.enabled=true",
        "history.persistence.storageClass=fast",
    ),
    "history on volumes with cert-manager": ("certificates.source=cert-manager", "history.persistence.enabled=true"),
    "as little as possible": (
        "agent.enabled=false",
        "webhooks.enabled=false",
        "policies.enabled=false",
        "viewer.create=false",
        "networkPolicy.enabled=false",
        "podDisruptionBudget.enabled=false",
        "people.tls=false",
    ),
}
INSTALL_VALUES = ("namespace.create=true",)


def copies() -> dict[Path, str]:
    """Return what the chart has to carry: path in the chart -> content."""
    originals = (path for pattern in COPIED for path in sorted((ROOT / "manifests").glob(pattern)))
    return {CHART / "files" / path.parent.name / path.name: path.read_text(encoding="utf-8") for path in originals}


class RenderingFailed(RuntimeError):
    """Helm refused; the message is what it said."""


def render(*values: str, kubernetes_version: str = KUBERNETES_VERSION) -> str:
    """Return the manifests as helm renders them with `values` such as mode=stand-alone. Raises RenderingFailed."""
    sets = [argument for value in values for argument in ("--set", value)]
    return helm("template", "tangram", str(CHART), "-n", NAMESPACE, "--kube-version", kubernetes_version, *sets)


def objects(*values: str) -> list[Json]:
    """Return the rendered objects."""
    return [each for each in yaml.safe_load_all(render(*values)) if each]


def one(found: Sequence[Json], kind: str, name: str) -> Json:
    """Return the only object of that kind and name."""
    (each,) = (each for each in found if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return each


def helm(*arguments: str) -> str:
    """Run helm and return its output; it finds no cluster, wherever it is run."""
    environment = {**os.environ, "KUBECONFIG": os.devnull}
    command = [str(ensure("helm")), *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    if answer.returncode:
        raise RenderingFailed(answer.stderr.strip()[-3000:])
    return answer.stdout
