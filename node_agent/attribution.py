"""Whose a process is: host pid -> cgroup -> pod UID, and -> mounts -> container name. Reads /proc, asks nobody.

Works for cgroup v1 and v2, the systemd and cgroupfs drivers, containerd and CRI-O, because it looks for the pattern
that all share: ``pod`` and a UID, anywhere in a line (node-side.md 3.7). The container's name is not in the cgroup; it
is in the path of the termination log that kubelet mounts into every container.
"""

from __future__ import annotations

import re
from pathlib import Path

from node_agent.readings import Tenant

MAX_REMEMBERED = 4096

_POD = re.compile(
    r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})(?![0-9a-f])"
)
"""A pod's UID, with underscores under the systemd driver; static pods have 32 digits without any."""

_CONTAINER_MOUNT = re.compile(r"/pods/(?P<uid>[^/\s]+)/containers/(?P<name>[^/\s]+)/")
_MPS_SERVER = "nvidia-cuda-mps"
"""The first 15 characters of ``nvidia-cuda-mps-server`` are all that the kernel keeps."""


class ProcAttributor:
    """Answers from /proc and remembers, by pid and start time, so that a pid used again is not mistaken."""

    def __init__(self, proc_root: Path = Path("/proc")) -> None:
        self._root = proc_root
        self._known: dict[int, tuple[str, Tenant | None]] = {}

    def tenant(self, pid: int) -> Tenant | None:
        """Return the owner of a process; None where it belongs to no pod or has ended meanwhile, which is normal."""
        started = self._start_time(pid)
        if started is None:
            self._known.pop(pid, None)
            return None
        known = self._known.get(pid)
        if known is None or known[0] != started:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            known = self._known[pid] = (started, self._look(pid))
        return known[1]

    def _look(self, pid: int) -> Tenant | None:
        if self._read(pid, "comm").strip() == _MPS_SERVER:
            return Tenant(is_mps_server=True)
        pod_uid = pod_uid_of(self._read(pid, "cgroup"))
        if pod_uid is None:
            return None
        return Tenant(pod_uid=pod_uid, container=container_name_of(self._read(pid, "mountinfo"), pod_uid))

    def _start_time(self, pid: int) -> str | None:
        # Field 22; the second field is the command in parentheses and may hold blanks and parentheses itself.
        fields = self._read(pid, "stat").rpartition(")")[2].split()
        return fields[19] if len(fields) > 19 else None

    def _read(self, pid: int, name: str) -> str:
        try:
            return (self._root / str(pid) / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""


def pod_uid_of(cgroup: str) -> str | None:
    """Return the pod UID in the text of a process's cgroup file, None where there is none.

    The innermost pod counts: on a Kubernetes node that is itself a container, the outer one is not ours.
    """
    for line in cgroup.splitlines():
        found = _POD.findall(line)
        if found:
            return str(found[-1]).replace("_", "-")
    return None


def container_name_of(mountinfo: str, pod_uid: str) -> str:
    """Return the name of the container whose mounts these are, empty where they do not tell."""
    for match in _CONTAINER_MOUNT.finditer(mountinfo):
        if match["uid"] == pod_uid:
            return match["name"]
    return ""
