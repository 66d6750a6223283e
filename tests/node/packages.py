"""Debian's containerd, runc, CNI plugins, iptables and busybox, unpacked into the cache: nothing is installed.

The folder is keyed by the names and versions that apt offers, and made under a name of its own before it gets its
final one, so that parallel runs and interrupted ones leave nothing half made.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.controlplane.build import cache_directory

NAMES = (
    "containerd",
    "runc",
    "containernetworking-plugins",
    "busybox-static",
    "iptables",
    "libip4tc2",
    "libip6tc2",
    "libxtables12",
    "libnftnl11",
    "libnfnetlink0",
    "libnetfilter-conntrack3",
)
_TOOLS = ("apt-get", "apt-cache", "dpkg")
_FETCH_S = 300


class PackagesMissing(RuntimeError):
    """The packages cannot be had on this machine; the message says why."""


@dataclass(frozen=True, slots=True)
class Packages:
    """The unpacked packages below `root`."""

    root: Path

    @property
    def search_path(self) -> str:
        """What PATH has to be for the packages' programs, before the machine's own."""
        inside = [str(self.root / place) for place in ("usr/bin", "usr/sbin", "bin", "sbin")]
        return os.pathsep.join([*inside, "/usr/sbin", "/usr/bin", "/sbin", "/bin"])

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which the packages' programs find each other and their libraries."""
        libraries = self.root / "usr/lib/x86_64-linux-gnu"
        return {
            "PATH": self.search_path,
            "LD_LIBRARY_PATH": str(libraries),
            "XTABLES_LIBDIR": str(libraries / "xtables"),
        }

    def program(self, name: str) -> Path:
        """Return the path of a program of the packages. Raises PackagesMissing when none of them has it."""
        for place in ("usr/bin", "usr/sbin", "bin", "sbin"):
            if (found := self.root / place / name).exists():
                return found
        message = f"program {name!r} is in none of the packages {', '.join(NAMES)}"
        raise PackagesMissing(message)


def packages() -> Packages:
    """Fetch and unpack the packages, or take them from the cache. Raises PackagesMissing."""
    absent = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if absent:
        message = f"a node needs Debian's packages, and there is no {', '.join(absent)} on PATH"
        raise PackagesMissing(message)
    place = cache_directory().parent / "node"
    place.mkdir(parents=True, exist_ok=True)
    root = place / f"debian-{_key()}"
    if not root.exists():
        with tempfile.TemporaryDirectory(dir=place, prefix="unpacking-") as unfinished:
            _unpack(Path(unfinished))
            try:
                (Path(unfinished) / "root").rename(root)
            except OSError:
                if not root.exists():  # else another run was faster
                    raise
    return Packages(root)


def _key() -> str:
    policy = _run(["apt-cache", "policy", *NAMES], at=Path("/"))
    versions = [line.strip() for line in policy.splitlines() if "Candidate:" in line]
    if len(versions) < len(NAMES) or any("(none)" in line for line in versions):
        message = f"apt knows no version of some of {', '.join(NAMES)}; `apt-get update` may help"
        raise PackagesMissing(message)
    return hashlib.sha256("\n".join([*NAMES, *versions]).encode()).hexdigest()[:16]


def _unpack(place: Path) -> None:
    downloads, root = place / "downloads", place / "root"
    downloads.mkdir()
    root.mkdir()
    _run(["apt-get", "download", "-q", *NAMES], at=downloads)
    for package in sorted(downloads.glob("*.deb")):
        _run(["dpkg", "-x", str(package), str(root)], at=downloads)
    for family in ("iptables", "ip6tables"):  # what the package's own script would link; CNI calls the plain names
        for action in ("", "-save", "-restore"):
            link = root / "usr/sbin" / f"{family}{action}"
            link.unlink(missing_ok=True)
            link.symlink_to("xtables-nft-multi")
    root.chmod(0o755)


def _run(command: list[str], *, at: Path) -> str:
    run = subprocess.run(command, cwd=at, capture_output=True, text=True, check=False, timeout=_FETCH_S)
    if run.returncode:
        message = f"{' '.join(command[:2])} ended with {run.returncode}: {run.stderr.strip()[-500:]}"
        raise PackagesMissing(message)
    return run.stdout
