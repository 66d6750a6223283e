"""What the agent costs a node: memory and CPU of agent and reader at default cadence, on the stub driver.

    python -m benchmarks.agent [seconds]

Eight devices, 64 processes, real child process, real pushes to a loopback receiver, metrics scraped every 15 s.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from tests.node_agent.receiver import Receiver
from tests.nvml.driver import Driver, compile_stub, compiler

DEVICES, PROCESSES = 8, 8
SETTLE_S, SCRAPE_S = 5.0, 15.0
PORT = 19464
LIMITS = {"rss_mib": 70.0, "cpu_percent": 1.0}
RESULT = Path(__file__).parent / "results" / "agent.json"


def main() -> int:
    """Measure, print, write; return 1 where a limit is passed."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    if compiler() is None:
        print("no C compiler: the stub driver cannot be built", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as directory, Receiver() as receiver:
        driver = _busy_driver(Path(directory))
        environ = {
            **driver.environ(),
            "TANGRAM_AGENT_URLS": receiver.url,
            "TANGRAM_AGENT_NODE": "bench",
            "TANGRAM_AGENT_METRICS_PORT": str(PORT),
            "TANGRAM_AGENT_METRICS_HOST": "127.0.0.1",
        }
        agent = subprocess.Popen([sys.executable, "-m", "node_agent"], env=environ)
        try:
            result = _measure(agent.pid, seconds)
        finally:
            agent.terminate()
            agent.wait(10)
        result["reports"] = len(receiver.reports)
    return _tell(result)


def _busy_driver(directory: Path) -> Driver:
    driver = Driver(compile_stub(directory / "lib"), directory / "scenario.txt")
    driver.set(count=DEVICES)
    for index in range(DEVICES):
        pids = [1000 + index * PROCESSES + number for number in range(PROCESSES)]
        driver.device(
            index,
            compute=",".join(f"{pid}:512" for pid in pids),
            samples=",".join(f"{pid}:10" for pid in pids),
            used_mib=PROCESSES * 512,
            util=80,
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
