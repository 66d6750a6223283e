"""A machine of its own inside this one: name spaces for processes, network and mounts that vanish together.

    with Machine("node-a", directory, packages) as machine:
        machine.run("containerd", ["containerd", "-c", file])

The first process is tied to the test run, and everything inside to the first process: however a run ends, nothing is
left but an empty cgroup. Nothing is shared between machines: each has its addresses, names and folders.
"""

import contextlib
import errno
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.controlplane.process import Process
from tests.node.packages import Packages

ADDRESS = "10.77.0.1"
SERVICE_ADDRESS = "10.96.0.1"
_CGROUPS = Path("/sys/fs/cgroup")
_TOOLS = ("unshare", "nsenter", "ip", "mount", "hostname")
_SYSTEM_ADMINISTRATION = 21  # CAP_SYS_ADMIN, linux/capability.h
_READY_S = 20.0
_SYSCTLS = {  # what kubelet wants to find; it is shown these, so that it never writes the real machine's own
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}


class MachineMissing(RuntimeError):
    """This machine cannot carry another one inside; the message says which right or tool is missing."""


@dataclass(frozen=True, slots=True)
class Finished:
    """What a command inside a machine said and how it ended."""

    code: int
    output: str


class InnerProcess(Process):
    """A program inside a machine: it is signalled itself, not the command that entered the namespaces with it."""

    def _signal(self, number: int) -> None:  # type: ignore[override]
        if self._child is None or self._child.poll() is not None:
            return
        inner = _children(self._child.pid)
        os.kill(inner[0] if inner else self._child.pid, number)


class Machine:
    """One machine; `directory` keeps its folders, which a second machine on the same directory finds again."""

    def __init__(self, name: str, directory: Path, packages: Packages) -> None:
        self.name = name
        self.directory = directory
        self.packages = packages
        self.cgroup = f"tangram-{os.getpid()}-{name}"
        self._first: Process | None = None
        self._running: list[InnerProcess] = []

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Make the namespaces and the cgroup. Raises MachineMissing when the machine does not allow it."""
        check_rights()
        _remove_abandoned()
        _make_cgroup(self.cgroup)
        ready = self.directory / "ready"
        ready.unlink(missing_ok=True)
        for folder in ("var", "var.work", "kubelet", "pods", "sys", "log", "shared"):
            (self.directory / folder).mkdir(parents=True, exist_ok=True)
        script = self.directory / "first.sh"
        script.write_text(self._first_script(ready), encoding="utf-8")
        command = ["unshare", "--fork", "--kill-child", "-u", "-n", "-m", "-p", "--mount-proc", "bash", str(script)]
        self._first = Process("machine", command, self.log("machine"), self.packages.environment)
        self._first.start()
        self._first.wait_until(ready.exists, within_s=_READY_S)

    def stop(self) -> None:
        """End everything at once, as a power cut would, and remove the cgroup."""
        if self._first is not None and self._first.is_running():
            os.kill(self.first_pid, 9)
            self._first.stop()
        for process in self._running:
            process.kill()
        self._running.clear()
        _remove_cgroup(self.cgroup)

    @property
    def first_pid(self) -> int:
        """The first process's id, as the real machine counts."""
        if self._first is None or not (found := _children(self._first.pid)):
            message = f"machine {self.name} is not running"
            raise RuntimeError(message)
        return found[0]

    def log(self, name: str) -> Path:
        """Return where the output of a program is kept."""
        (self.directory / "log").mkdir(parents=True, exist_ok=True)
        return self.directory / "log" / f"{name}.log"

    def process(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> InnerProcess:
        """Return a program inside the machine that is not started yet."""
        within = self.entering(*command)
        process = InnerProcess(name, within, self.log(name), {**self.packages.environment, **(environment or {})})
        self._running.append(process)
        return process

    def run(self, *command: str, within_s: float = 30.0, text: str | None = None) -> Finished:
        """Run a command inside the machine to its end, `text` on its standard input."""
        done = subprocess.run(
            self.entering(*command),
            env={**os.environ, **self.packages.environment},
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=within_s,
        )
        return Finished(done.returncode, done.stdout)

    def entering(self, *command: str) -> list[str]:
        """Return the command line that runs a command inside the machine."""
        return ["nsenter", "-t", str(self.first_pid), "-u", "-n", "-m", "-p", "--", *command]

    def _first_script(self, ready: Path) -> str:
        at = self.directory
        sysctls = []
        for name, value in _SYSCTLS.items():
            file = at / "sys" / name.replace("/", "_")
            sysctls += [f"echo {value} > {file}", f"mount --bind {file} /proc/sys/{name}"]
        busybox = self.packages.program("busybox")
        return "\n".join(
            [
                "set -e",
                "mount --make-rprivate / && mount --make-rshared /",
                "mount -t tmpfs tmpfs /run",
                f"mount -t overlay overlay -o lowerdir=/var,upperdir={at}/var,workdir={at}/var.work /var",
                "mkdir -p /var/lib/kubelet /var/log/pods /var/log/containers",
                f"mount --bind {at}/kubelet /var/lib/kubelet && mount --make-shared /var/lib/kubelet",
                f"mount --bind {at}/pods /var/log/pods",
                *sysctls,
                "ip link set lo up",
                f"ip address add {SERVICE_ADDRESS}/32 dev lo",
                "ip link add n0 type veth peer name n0p",
                f"ip address add {ADDRESS}/24 dev n0",
                "ip link set n0 up && ip link set n0p up",
                "ip route add default via 10.77.0.254 dev n0",
                "echo 1 > /proc/sys/net/ipv4/ip_forward",
                f"hostname {self.name}",
                f"touch {ready}",
                # A shell that waits reaps the orphans that containers leave behind.
                f"exec {busybox} sh -c 'while :; do sleep 3600; done'",
            ]
        )


def check_rights() -> None:
    """Raise MachineMissing when a tool or a right for namespaces is missing."""
    absent = [tool for tool in _TOOLS if shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None]
    if absent:
        message = f"a node needs namespaces, and there is no {', '.join(absent)} on PATH"
        raise MachineMissing(message)
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    (effective,) = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:")]
    if not effective >> _SYSTEM_ADMINISTRATION & 1:
        message = "a node needs namespaces and cgroups of its own: run as root, with CAP_SYS_ADMIN"
        raise MachineMissing(message)
    if not _hierarchies():
        message = f"a node needs cgroups, and none is mounted below {_CGROUPS}"
        raise MachineMissing(message)


def _children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def _hierarchies() -> list[Path]:
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS]
    return [each for each in _CGROUPS.glob("*") if (each / "cgroup.procs").exists() and each.name != "unified"]


def _make_cgroup(name: str) -> None:
    for hierarchy in _hierarchies():
        group = hierarchy / name
        try:
            group.mkdir(exist_ok=True)
        except OSError as problem:
            message = f"a node needs a cgroup of its own in {hierarchy}: {problem.strerror}"
            raise MachineMissing(message) from problem
        if hierarchy == _CGROUPS:
            for controller in (hierarchy / "cgroup.controllers").read_text().split():
                _write(hierarchy / "cgroup.subtree_control", f"+{controller}")
        for limit in ("cpuset.cpus", "cpuset.mems"):
            if hierarchy != _CGROUPS and (hierarchy / limit).exists():
                _write(group / limit, (hierarchy / limit).read_text())


def _remove_abandoned() -> None:
    """Remove the cgroups of runs that were killed before they could do it themselves."""
    for hierarchy in _hierarchies():
        for group in hierarchy.glob("tangram-*-*"):
            process = group.name.split("-")[1]
            if process.isdecimal() and not Path(f"/proc/{process}").exists():
                _remove_cgroup(group.name, within_s=0.2)


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text)
    except OSError as problem:
        if problem.errno not in (errno.EBUSY, errno.EINVAL):
            raise


def _remove_cgroup(name: str, *, within_s: float = 5.0) -> None:
    """Remove the cgroup with those below it; what a process still dies in takes a moment."""
    deadline = time.monotonic() + within_s
    for hierarchy in _hierarchies():
        while (hierarchy / name).exists():
            for folder, _, _ in os.walk(hierarchy / name, topdown=False):
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()
            if time.monotonic() > deadline:
                return
            time.sleep(0.05)
