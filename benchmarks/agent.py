"""What the agent costs a node: memory and CPU of agent and reader at default cadence, on the stub driver.

    python -m benchmarks.agent [seconds]

Everything that a node has: eight devices, 64 processes in pods with bookings, a real child process, pushes over TLS
with a token to a loopback receiver, a kubelet with 110 pods on its socket, metrics scraped every 15 s.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import trustme

from node_agent.report import Booking
from tests.node_agent.kubelet import Kubelet, devices, field
from tests.node_agent.receiver import Receiver
from tests.nvml.driver import Driver, compile_stub, compiler

DEVICES, PROCESSES = 8, 8
SETTLE_S, SCRAPE_S = 5.0, 15.0
PORT = 19464
FIRST_PID = 1000
TOKEN = "x" * 1200
"""As long as a projected service-account token."""
LIMITS = {"rss_mib": 70.0, "cpu_percent": 1.0}
RESULT = Path(__file__).parent / "results" / "agent.json"


def main() -> int:
    """Measure, print, write; return 1 where a limit is passed."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    if compiler() is None:
        print("no C compiler: the stub driver cannot be built", file=sys.stderr)
        return 2
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with tempfile.TemporaryDirectory() as directory, Receiver(context=context) as receiver:
        root = Path(directory)
        receiver.bookings, receiver.token = tuple(map(_booking, range(DEVICES * PROCESSES))), TOKEN
        environ = _environment(root, receiver.port, authority)
        with Kubelet(root / "kubelet.sock", _pods()):
            result = _run(environ, seconds)
        result["reports"] = len(receiver.reports)
        result["refused"] = len(receiver.refused_at)
    return _tell(result)


def _run(environ: dict[str, str], seconds: float) -> dict[str, float]:
    agent = subprocess.Popen([sys.executable, "-m", "node_agent"], env=environ)
    try:
        return _measure(agent.pid, seconds)
    finally:
        agent.terminate()
        agent.wait(10)


def _environment(root: Path, port: int, authority: trustme.CA) -> dict[str, str]:
    authority.cert_pem.write_to_path(str(root / "ca.crt"))
    (root / "token").write_text(TOKEN)
    for number in range(DEVICES * PROCESSES):
        _write_process(root / "proc" / str(FIRST_PID + number), number)
    return {
        **_busy_driver(root).environ(),
        "TANGRAM_AGENT_URLS": f"https://127.0.0.1:{port}",
        "TANGRAM_AGENT_CA_FILE": str(root / "ca.crt"),
        "TANGRAM_AGENT_TOKEN_FILE": str(root / "token"),
        "TANGRAM_AGENT_POD_RESOURCES_SOCKET": str(root / "kubelet.sock"),
        "TANGRAM_AGENT_PROC_ROOT": str(root / "proc"),
        "TANGRAM_AGENT_HEALTH_FILE": str(root / "health.json"),
        "TANGRAM_AGENT_NODE": "bench",
        "TANGRAM_AGENT_METRICS_PORT": str(PORT),
        "TANGRAM_AGENT_METRICS_HOST": "127.0.0.1",
    }


def _pod_uid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def _booking(number: int) -> Booking:
    uuid = f"GPU-{number // PROCESSES:08d}-0000-0000-0000-000000000000"
    return Booking(
        pod_uid=_pod_uid(number),
        namespace="team",
        name=f"pod-{number}",
        container="main",
        uuid=uuid,
        memory_mib=512,
        compute_milli=100,
    )


def _write_process(place: Path, number: int) -> None:
    """Lay out what attribution reads of one process."""
    place.mkdir(parents=True)
    uid = _pod_uid(number).replace("-", "_")
    (place / "comm").write_text("python3\n")
    (place / "stat").write_text(f"{place.name} (python3) S " + " ".join(["1"] * 49) + "\n")
    (place / "cgroup").write_text(f"0::/kubepods.slice/kubepods-pod{uid}.slice/cri-containerd-{number:064x}.scope\n")
    log = f"/var/lib/kubelet/pods/{_pod_uid(number)}/containers/main/1a2b /dev/termination-log rw"
    (place / "mountinfo").write_text(f"1 1 8:1 {log} - ext4 /dev/sda1 rw\n" * 20)


def _pods() -> dict[str, bytes]:
    """Return kubelet's answers: as many pods as a node has by default, some with a device of another plugin."""
    one = field(3, field(1, "main") + field(2, devices("example.com/nic", "nic-0")))
    pods = [field(1, field(1, f"pod-{number}") + field(2, "team") + one) for number in range(110)]
    return {"List": b"".join(pods), "GetAllocatableResources": field(1, devices("example.com/nic", "nic-0"))}


def _busy_driver(directory: Path) -> Driver:
    driver = Driver(compile_stub(directory / "lib"), directory / "scenario.txt")
    driver.set(count=DEVICES)
    for index in range(DEVICES):
        pids = [FIRST_PID + index * PROCESSES + number for number in range(PROCESSES)]
        driver.device(
            index,
            compute=",".join(f"{pid}:512" for pid in pids),
            samples=",".join(f"{pid}:10" for pid in pids),
            used_mib=PROCESSES * 512,
            util=80,
            gpm=40,
        )
    return driver


def _measure(pid: int, seconds: float) -> dict[str, float]:
    time.sleep(SETTLE_S)
    pids = [pid, *_children(pid)]
    before, began_s = _cpu_s(pids), time.monotonic()
    while (left_s := began_s + seconds - time.monotonic()) > 0:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=5) as answer:
            answer.read()
        time.sleep(min(SCRAPE_S, left_s))
    elapsed_s = time.monotonic() - began_s
    parts = [_pss_mib(each) for each in pids]
    return {
        "rss_mib": round(sum(parts), 1),
        "agent_mib": round(parts[0], 1),
        "reader_mib": round(sum(parts[1:]), 1),
        "cpu_percent": round((_cpu_s(pids) - before) / elapsed_s * 100, 2),
        "seconds": round(elapsed_s),
    }


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _cpu_s(pids: list[int]) -> float:
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(each[11]) + int(each[12]) for each in fields) / 100


def _pss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _tell(result: dict[str, float]) -> int:
    for name, value in result.items():
        limit = f"   (limit {LIMITS[name]:g})" if name in LIMITS else ""
        print(f"{name:12} {value:8g}{limit}")
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    return int(any(result[name] > limit for name, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())
