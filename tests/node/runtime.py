"""What the container runtime of a node reads: containerd's configuration, the network's, NVIDIA's runtime's, CDI's."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.node.packages import Packages
from tests.node.programs import program

PAUSE_IMAGE = "tangram.test/pause:1"
SOCKET = "/run/containerd/containerd.sock"
MARKS = "/run/devices-seen"
_POD_NETWORK = "10.78.0.0/24"
_LIBRARY = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"


@dataclass(frozen=True, slots=True)
class StubDriver:
    """The stand-in for NVIDIA's driver on the host: its library, and the folder with its scenario file."""

    library: Path
    scenario: Path


def write_containerd(directory: Path, packages: Packages) -> Path:
    """Write containerd's configuration, with the handlers `runc` and `nvidia`, and return its path."""
    network = directory / "cni"
    network.mkdir(exist_ok=True)
    (network / "10-pods.conflist").write_text(json.dumps(_network()), encoding="utf-8")
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    lines = [
        "version = 2",
        f'root = "{directory / "containerd"}"',
        'state = "/run/containerd"',
        f'[grpc]\n  address = "{SOCKET}"',
        f"[{cri}]",
        f'  sandbox_image = "{PAUSE_IMAGE}"',
        # Without the right CAP_SYS_RESOURCE no container could get a lower score than its starter's.
        "  restrict_oom_score_adj = true",
        f'[{cri}.cni]\n  bin_dir = "{packages.root}/usr/lib/cni"\n  conf_dir = "{network}"',
    ]
    for handler, binary in (
        ("runc", packages.program("runc")),
        ("nvidia", program("nvidia-container-runtime.cdi")),
    ):
        runtime = f"{cri}.containerd.runtimes.{handler}"
        lines += [
            f'[{runtime}]\n  runtime_type = "io.containerd.runc.v2"',
            f'[{runtime}.options]\n  BinaryName = "{binary}"',
        ]
    path = directory / "containerd.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_nvidia_runtime(directory: Path, packages: Packages) -> dict[str, str]:
    """Write the configuration of NVIDIA's runtime; return the variables with which containerd lets it be found."""
    place = directory / "nvidia" / "nvidia-container-runtime"
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.toml").write_text(
        "\n".join(
            [
                "[nvidia-container-runtime]",
                f'debug = "{directory / "log" / "nvidia-runtime.log"}"',
                'log-level = "info"',
                'mode = "cdi"',
                f'runtimes = ["{packages.program("runc")}"]',
                "[nvidia-container-runtime.modes.cdi]",
                'default-kind = "nvidia.com/gpu"',
                f'spec-dirs = ["{directory / "cdi"}"]',
                "",
            ]
        ),
        encoding="utf-8",
    )
    return {"XDG_CONFIG_HOME": str(directory / "nvidia")}


def write_devices(directory: Path, uuids: Sequence[str], driver: StubDriver, mps_control: Path) -> None:
    """Write the CDI file of a node: each device of these UUIDs mounts a file of its name below MARKS, `all` all.

    Every container with a device gets the driver's library, as NVIDIA's own generator of such files arranges it.
    """
    marks = directory / "marks"
    marks.mkdir(exist_ok=True)
    for uuid in uuids:
        (marks / uuid).write_text(f"{uuid}\n", encoding="utf-8")
    edits = {uuid: [_mount(marks / uuid, f"{MARKS}/{uuid}")] for uuid in uuids}
    edits["all"] = [mount for mounts in edits.values() for mount in mounts]
    document = {
        "cdiVersion": "0.6.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": name, "containerEdits": {"mounts": mounts}} for name, mounts in edits.items()],
        "containerEdits": {
            "env": ["TANGRAM_NVML_SCENARIO=/run/nvml/scenario.txt"],
            "mounts": [
                _mount(driver.library, _LIBRARY),
                _mount(driver.scenario.parent, "/run/nvml"),
                _mount(mps_control, "/usr/bin/nvidia-cuda-mps-control"),
            ],
        },
    }
    place = directory / "cdi"
    place.mkdir(exist_ok=True)
    (place / "nvidia.json").write_text(json.dumps(document, indent=1), encoding="utf-8")


def _mount(source: Path, target: str) -> dict[str, object]:
    return {"hostPath": str(source), "containerPath": target, "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"]}


def _network() -> dict[str, object]:
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": True,
        "ipam": {
            "type": "host-local",
            "dataDir": "/run/cni",
            "subnet": _POD_NETWORK,
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, ports]}
