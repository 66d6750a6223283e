"""Images without a registry or a container builder: the same content that the Dockerfiles describe, made from files.

`scripts/images FOLDER` writes archives of both images that `ctr -n k8s.io images import`, `docker load` and
`kind load image-archive` read. The interpreter that runs this becomes the image's Python; the rest is the wheel and its
dependencies at the lock's versions. Command, user and variables are read from the Dockerfiles.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.controlplane.build import cache_directory
from tests.node.archive import Image, Layer, write_image

ROOT = Path(__file__).parents[2]
COMPONENTS = ("extender", "agent")
_LAYOUT = "1"  # another number makes cached layers anew: count on when what is written into them changes
_SITE = f"opt/tangram/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
_NOT_FOR_IMAGES = ("test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "site-packages")
_PASSWD = "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n"
_GROUP = "root:x:0:\nnonroot:x:65532:\n"
_ALSO_NEEDED = ("libgcc_s.so.1", "libstdc++.so.6")  # of wheels; distroless/cc has them


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """What the last stage of a Dockerfile says about its containers, and which extra of the wheel it installs."""

    entrypoint: tuple[str, ...]
    user: str
    environment: dict[str, str]
    extra: str


def read_dockerfile(component: str) -> Dockerfile:
    """Read one of the project's Dockerfiles. Raises ValueError when it is not of the known shape."""
    text = (ROOT / "manifests" / "docker" / f"{component}.Dockerfile").read_text(encoding="utf-8")
    last = text[text.rindex("\nFROM ") :]
    found = {
        "ENTRYPOINT": re.search(r"^ENTRYPOINT (\[.*\])$", last, re.MULTILINE),
        "USER": re.search(r"^USER (\S+)$", last, re.MULTILINE),
        "ENV": re.search(r"^ENV (.*)$", last, re.MULTILINE),
        "pip install '.[extra]'": re.search(r"'\.\[(\w+)\]'", text),
    }
    missing = [name for name, match in found.items() if match is None]
    if missing:
        message = f"{component}.Dockerfile: no line of the known shape for {', '.join(missing)}"
        raise ValueError(message)
    entrypoint, user, environment, extra = (match.group(1) for match in found.values() if match)
    pairs = (pair.split("=", 1) for pair in environment.split())
    return Dockerfile(tuple(json.loads(entrypoint)), user, dict(pairs), extra)


def product_image(component: str, name: str, folder: Path) -> Path:
    """Write the archive of the extender's or the agent's image into a folder, under a name with a tag."""
    described = read_dockerfile(component)
    layers = (python_layer(), dependencies_layer(described.extra), _product_layer(folder))
    image = Image(name, layers, entrypoint=described.entrypoint, environment=described.environment, user=described.user)
    return write_image(image, folder / f"{component}.tar")


def program_image(program: Path, name: str, folder: Path) -> Path:
    """Write the archive of an image with one static program in /usr/local/bin."""

    def fill(layer: Layer) -> None:
        layer.file(f"usr/local/bin/{program.name}", program)
        layer.text("etc/passwd", _PASSWD)
        layer.directory("tmp", 0o1777)

    layer = _write_layer(folder / f"{program.name}.layer.tar", fill)
    environment = {"PATH": "/usr/local/bin"}
    return write_image(
        Image(name, (layer,), (f"/usr/local/bin/{program.name}",), (), environment), folder / f"{program.name}.tar"
    )


def busybox_image(busybox: Path, name: str, folder: Path, *, visible: str | None = None) -> Path:
    """Write the archive of a small image for test pods; `visible` is what the image itself says about devices."""

    def fill(layer: Layer) -> None:
        layer.file("bin/busybox", busybox)
        applets = subprocess.run([str(busybox), "--list"], capture_output=True, text=True, check=True).stdout
        for applet in applets.split():
            if applet != "busybox":
                layer.link(f"bin/{applet}", "busybox")
        layer.text("etc/passwd", _PASSWD)
        for place in ("proc", "sys", "dev", "run", "var"):
            layer.directory(place)
        layer.directory("tmp", 0o1777)

    stem = re.sub(r"[^a-z0-9]+", "-", name)
    environment = {"PATH": "/bin"} | ({} if visible is None else {"NVIDIA_VISIBLE_DEVICES": visible})
    layer = _write_layer(folder / f"{stem}.layer.tar", fill)
    return write_image(Image(name, (layer,), (), ("sh",), environment), folder / f"{stem}.tar")


def pause_image(busybox: Path, name: str, folder: Path) -> Path:
    """Write the archive of the image that holds a pod's namespaces open: a shell that waits, and reaps orphans."""

    def fill(layer: Layer) -> None:
        layer.file("bin/busybox", busybox)
        layer.link("bin/sh", "busybox")
        layer.link("bin/sleep", "busybox")

    layer = _write_layer(folder / "pause.layer.tar", fill)
    waiting = "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done"
    return write_image(Image(name, (layer,), ("/bin/sh", "-c", waiting), (), {"PATH": "/bin"}), folder / "pause.tar")


def python_layer() -> Path:
    """Return the layer with the running interpreter below /usr/local and the C libraries that it needs."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    source = Path(sys.base_prefix) / "lib" / version
    libraries = _shared_libraries([Path(sys.base_prefix) / "bin" / version, *source.rglob("*.so")])

    def fill(layer: Layer) -> None:
        layer.file(f"usr/local/bin/{version}", Path(sys.base_prefix) / "bin" / version)
        layer.tree(f"usr/local/lib/{version}", source, without=(*_NOT_FOR_IMAGES, _static_folder()))
        for path, file in libraries.items():
            layer.file(path, file)
        layer.link("opt/tangram/bin/python", f"/usr/local/bin/{version}")
        layer.text("opt/tangram/pyvenv.cfg", "home = /usr/local/bin\ninclude-system-site-packages = false\n")
        layer.text("etc/passwd", _PASSWD)
        layer.text("etc/group", _GROUP)
        layer.text("etc/nsswitch.conf", "hosts: files dns\n")
        layer.directory("home/nonroot")
        for place in ("proc", "sys", "dev", "run", "var"):
            layer.directory(place)
        layer.directory("tmp", 0o1777)

    return _cached_layer("python", [sys.version, sys.base_prefix, *libraries], fill)


def dependencies_layer(extra: str) -> Path:
    """Return the layer with what the wheel needs with one extra, at the lock's versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"][extra]]
    lock = ROOT / "requirements.lock"

    def fill(layer: Layer) -> None:
        with tempfile.TemporaryDirectory() as place:
            constraints = Path(place) / "constraints.txt"
            constraints.write_text(_without_hashes(lock.read_text(encoding="utf-8")), encoding="utf-8")
            _install(Path(place) / "site", *wanted, "--constraint", str(constraints))
            layer.tree(_SITE, Path(place) / "site", without=("tests",))

    return _cached_layer(f"dependencies-{extra}", [sys.version, *wanted, lock.read_text(encoding="utf-8")], fill)


def _product_layer(folder: Path) -> Path:
    """Build the wheel and return the layer with it; made once for a folder."""
    target = folder / "product.layer.tar"
    if target.exists():
        return target

    def fill(layer: Layer) -> None:
        with tempfile.TemporaryDirectory() as place:
            _run(_uv(), "build", "--quiet", "--wheel", "--out-dir", place, str(ROOT))
            (wheel,) = Path(place).glob("*.whl")
            _install(Path(place) / "site", "--no-deps", str(wheel))
            layer.tree(_SITE, Path(place) / "site")

    return _write_layer(target, fill)


def _install(target: Path, *arguments: str) -> None:
    _run(
        _uv(),
        "pip",
        "install",
        "--quiet",
        "--compile-bytecode",
        "--python",
        sys.executable,
        "--target",
        str(target),
        *arguments,
    )


def _uv() -> str:
    return str(Path(sys.executable).with_name("uv"))


def _run(*command: str) -> None:
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        message = f"{' '.join(command[:3])} ended with {run.returncode}: {run.stderr.strip()[-1500:]}"
        raise RuntimeError(message)


def _without_hashes(lock: str) -> str:
    return re.sub(r"\s*\\$", "", re.sub(r"^ +--hash.*\n", "", lock, flags=re.MULTILINE), flags=re.MULTILINE)


def _static_folder() -> str:
    """Return the folder of files for building extensions, 20 MiB that no container needs."""
    return Path(sysconfig.get_config_var("LIBPL") or "config").name


def _shared_libraries(programs: Iterable[Path]) -> dict[str, Path]:
    """Return the C libraries that programs load, by the place where the image has them."""
    listed = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False).stdout
    found: dict[str, Path] = {}
    for name, path in re.findall(r"^\s+(?:(\S+) => )?(/\S+) \(0x", listed, re.MULTILINE):
        file = Path(path)
        found[path if not name else f"usr/lib/x86_64-linux-gnu/{name}"] = file
    beside = next(file for place, file in found.items() if place.endswith("libc.so.6")).parent
    for name in _ALSO_NEEDED:
        found[f"usr/lib/x86_64-linux-gnu/{name}"] = beside / name
    return found


def _cached_layer(name: str, key: Iterable[str], fill: Callable[[Layer], None]) -> Path:
    digest = hashlib.sha256("\n".join([_LAYOUT, *key]).encode()).hexdigest()[:16]
    target = cache_directory().parent / "node" / "layers" / f"{name}-{digest}.tar"
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        return target
    for former in target.parent.glob(f"{name}-*.tar"):
        former.unlink(missing_ok=True)
    return _write_layer(target, fill)


def _write_layer(target: Path, fill: Callable[[Layer], None]) -> Path:
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    with tarfile.open(unfinished, "w") as tar:
        fill(Layer(tar))
    unfinished.replace(target)
    return target


def main() -> int:
    """Write both images into the folder that the command line names, and print their archives."""
    parser = argparse.ArgumentParser(description="Write Tangram's images as archives, without a container builder")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tag", default="dev")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    (arguments.folder / "product.layer.tar").unlink(missing_ok=True)
    for component in COMPONENTS:
        print(product_image(component, f"ghcr.io/tangram-gpu/{component}:{arguments.tag}", arguments.folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
