"""The Go modules that name the control plane's programs.

The modules of the default versions are committed under `go/`, so that a build downloads exactly what was reviewed.
Any other Kubernetes version is described by a module made on the spot from the same text, so a compatibility matrix is
a list of numbers. This module writes module files; it builds nothing (`build` does).

Kubernetes' own go.mod replaces its staging modules by paths that are not in the module's archive, so ours replaces
each of them by the published module of the same minor and patch: `k8s.io/api` v0.36.3 for Kubernetes v1.36.3.
"""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

KUBERNETES_VERSION = "1.36.3"
ETCD_VERSION = "3.6.13"
HELM_VERSION = "4.3.1"
COMMITTED = Path(__file__).parent / "go"

KUBERNETES_PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
ETCD_PROGRAMS = ("etcd",)
HELM_PROGRAMS = ("helm",)


@dataclass(frozen=True, slots=True)
class GoModule:
    """One module of ours: where its files are, and the main package behind each program it provides.

    With `cgo` the programs need a C compiler, and the machine's C library when they run.
    """

    name: str
    version: str
    directory: Path
    packages: Mapping[str, str]
    linker_flags: str
    cgo: bool = False


def etcd_module() -> GoModule:
    """Describe the committed module of etcd; its main package is the root of the server module."""
    packages = dict.fromkeys(ETCD_PROGRAMS, "go.etcd.io/etcd/server/v3")
    return GoModule("etcd", ETCD_VERSION, COMMITTED / "etcd", packages, "-s -w")


def helm_module() -> GoModule:
    """Describe the committed module of helm, apart from Kubernetes' so that their versions do not mix."""
    packages = dict.fromkeys(HELM_PROGRAMS, "helm.sh/helm/v4/cmd/helm")
    return GoModule("helm", HELM_VERSION, COMMITTED / "helm", packages, "-s -w")


def kubernetes_module(version: str, generated: Path) -> GoModule:
    """Describe the module of one Kubernetes version such as 1.36.3, written below `generated` if not committed."""
    directory = COMMITTED / "kubernetes"
    if version != KUBERNETES_VERSION:
        directory = generated / f"kubernetes-{version}"
        if not (directory / "go.sum").exists():
            write_kubernetes_module(version, directory)
    packages = {program: f"k8s.io/kubernetes/cmd/{program}" for program in KUBERNETES_PROGRAMS}
    return GoModule("kubernetes", version, directory, packages, version_flags(version))


def write_kubernetes_module(version: str, directory: Path) -> None:
    """Write go.mod and go.sum for one Kubernetes version into `directory`; needs Go and the module proxy."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "go.mod").write_text(_kubernetes_go_mod(version), encoding="utf-8")
    (directory / "go.sum").unlink(missing_ok=True)
    _go("mod", "tidy", at=directory)


def _kubernetes_go_mod(version: str) -> str:
    download = json.loads(_go("mod", "download", "-json", f"k8s.io/kubernetes@v{version}", at=Path("/")))
    upstream = json.loads(_go("mod", "edit", "-json", download["GoMod"], at=Path("/")))
    staging = sorted(line["Old"]["Path"] for line in upstream["Replace"])
    _, _, minor_and_patch = version.partition(".")
    return "\n".join(
        [
            "module tangram.dev/tests/controlplane/kubernetes",
            "",
            f"go {upstream['Go']}",
            "",
            f"require k8s.io/kubernetes v{version}",
            "",
            "tool (",
            *(f"\tk8s.io/kubernetes/cmd/{program}" for program in KUBERNETES_PROGRAMS),
            ")",
            "",
            "replace (",
            *(f"\t{module} => {module} v0.{minor_and_patch}" for module in staging),
            ")",
            "",
        ]
    )


def version_flags(version: str) -> str:
    """Stamp the version, which a release build does and a plain `go build` leaves at v0.0.0-master."""
    major, minor, _ = version.split(".")
    stamps = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s -w", *(f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamps.items())])


def _go(*arguments: str, at: Path) -> str:
    run = subprocess.run(["go", *arguments], cwd=at, capture_output=True, text=True, check=False)
    if run.returncode:
        message = f"go {' '.join(arguments)} ended with {run.returncode}: {run.stderr.strip()[-2000:]}"
        raise RuntimeError(message)
    return run.stdout
