"""The programs of a node that are Go modules: kubelet, NVIDIA's container runtime, CoreDNS.

They are built and cached as those of the control plane are (`tests.controlplane.build`), each from a committed module.
`python -m tests.node.programs` builds all of them.
"""

import sys
from pathlib import Path

from tests.controlplane.build import ensure_of
from tests.controlplane.modules import KUBERNETES_VERSION, GoModule, version_flags

TOOLKIT_VERSION = "1.20.2"
COREDNS_VERSION = "1.14.7"
_COMMITTED = Path(__file__).parent / "go"
_TOOLKIT = "github.com/NVIDIA/nvidia-container-toolkit/cmd"
_STRIPPED = "-s -w"

_MODULES = {
    "kubelet": GoModule(
        "kubelet",
        KUBERNETES_VERSION,
        _COMMITTED / "kubelet",
        {"kubelet": "k8s.io/kubernetes/cmd/kubelet"},
        version_flags(KUBERNETES_VERSION),
    ),
    "coredns": GoModule("coredns", COREDNS_VERSION, _COMMITTED / "coredns", {"coredns": "."}, _STRIPPED),
} | dict.fromkeys(
    ("nvidia-container-runtime.cdi", "nvidia-container-runtime"),
    GoModule(
        "toolkit",
        TOOLKIT_VERSION,
        _COMMITTED / "toolkit",
        {name: f"{_TOOLKIT}/{name}" for name in ("nvidia-container-runtime", "nvidia-container-runtime.cdi")},
        _STRIPPED,
        cgo=True,
    ),
)
PROGRAMS = tuple(_MODULES)


def program(name: str) -> Path:
    """Return the path of one program of PROGRAMS, built on its first use; about four minutes for all on two cores."""
    return ensure_of(_MODULES[name], name)


if __name__ == "__main__":
    for each in sys.argv[1:] or PROGRAMS:
        print(program(each))
