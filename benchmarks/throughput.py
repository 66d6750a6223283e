"""``make bench NAME=throughput``: many pods at once on a real control plane with simulated nodes, until all are bound.

    python -m benchmarks.throughput [--nodes 500] [--most-ratio 1.5]

etcd, kube-apiserver and kube-scheduler are the real ones (built once, needs Go); kubelets and agents are simulated, and
run in this process. Scenarios, each on an empty fleet of nodes of eight devices:

``whole``      a whole device for each pod, one pod a device
``fractions``  two pods a device, of mixed sizes that fill 90 % of the fleet's memory at most
``impossible`` one pod that asks more than any device has: seconds until its condition tells why
``freed``      one pod that waits until another is deleted: seconds from the deletion to its placement
``stock``      the pods of ``whole``, by kube-scheduler alone with its own binder, the product stopped

``cpu_s`` is the CPU time of extender, scheduler, API server and etcd, the extender's also on its own; ``refused``
counts binds that another pod forestalled. With ``--most-ratio`` the run fails where ``whole`` takes more times as long
as ``stock``.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2

from benchmarks.results import show
from node_agent.simulated_builders import node_description
from tests.controlplane.api import Json, wait_for
from tests.controlplane.build import binaries
from tests.controlplane.plane import ControlPlane
from tests.controlplane.scheduler import plain_configuration
from tests.controlplane.stack import EXTENDER, PODS, Stack, open_stack, pod

DEVICES = 8
PRODUCT = "A100"
_CREATORS = 8
_PATIENCE_S = 1800.0
_TICKS_A_SECOND = 100
_REFUSED = re.compile(r'^tangram_extender_binds_total\{outcome="NoLongerFits"\} (\S+)', re.MULTILINE)

Row = dict[str, str | int | float | bool | None]
Cpu = Mapping[str, float]


def whole_pods(nodes: int, scheduler: str | None = None) -> list[Json]:
    """Return one pod a device, each for a whole one."""
    made = [pod(f"whole-{number}", devices=1, compute=100) for number in range(nodes * DEVICES)]
    for each in made:
        each["spec"]["schedulerName"] = scheduler or each["spec"]["schedulerName"]
    return made


def mixed_pods(nodes: int, device_mib: int, draw: random.Random) -> list[Json]:
    """Return two pods a device of 1/8 to 6/8 of one, 0.45 on average: 90 % of the fleet."""
    weights = (0.15, 0.2, 0.2, 0.2, 0.15, 0.1)
    eighths = draw.choices(range(1, 7), weights, k=2 * nodes * DEVICES)
    return [pod(f"mixed-{number}", memory=part * device_mib // 8) for number, part in enumerate(eighths)]


def run(stack: Stack, scenario: str, pods: Sequence[Json], cpu: Callable[[], Cpu]) -> Row:
    """Create the pods at once, and wait until no more of them get bound."""
    before, refused, started = cpu(), _refused(stack), time.monotonic()
    with ThreadPoolExecutor(_CREATORS) as creators:
        list(creators.map(stack.create, pods))
    bound, seconds = _until_settled(stack, len(pods), started)
    used = {name: seconds_now - before.get(name, 0.0) for name, seconds_now in cpu().items()}
    return _row(scenario, len(pods), bound, seconds) | {
        "cpu_s": round(sum(used.values()), 2),
        "extender_cpu_s": round(used.get("extender", 0.0), 2),
        "refused": _refused(stack) - refused,
    }


def _until_settled(stack: Stack, count: int, started: float) -> tuple[int, float]:
    """Return how many got bound and when the last one was; gives up where nothing is bound for 15 seconds."""
    bound, at = 0, time.monotonic()
    while bound < count and time.monotonic() - at < 15.0 and time.monotonic() - started < _PATIENCE_S:
        now = count - len(stack.api.items(PODS, fieldSelector="spec.nodeName="))
        if now > bound:
            bound, at = now, time.monotonic()
        time.sleep(0.2)
    return bound, at - started


def reason(stack: Stack, device_mib: int) -> Row:
    """Time a pod that fits nowhere, from its creation to a condition that says why."""
    started = time.monotonic()
    stack.create(pod("impossible", memory=device_mib + 1))
    stack.wait_refusal("impossible", "GPU", within_s=60.0)
    seconds = time.monotonic() - started
    stack.delete("impossible")
    return _row("impossible", 1, 0, seconds)


def freed(stack: Stack, leaving: str) -> Row:
    """Time a pod that waits for a device, from the end of the pod that has one to its own placement."""
    stack.create(pod("waiting", devices=1, compute=100))
    stack.wait_refusal("waiting", "nodes are available", within_s=60.0)
    stack.delete(leaving)
    started = time.monotonic()
    wait_for("it is placed", lambda: stack.pod("waiting")["spec"].get("nodeName"), within_s=60.0)
    return _row("freed", 1, 1, time.monotonic() - started)


def _row(scenario: str, pods: int, bound: int, seconds: float) -> Row:
    rate = round(bound / seconds, 1) if pods > 1 and seconds else None
    figures: Row = {
        "scenario": scenario,
        "pods": pods,
        "bound": bound,
        "seconds": round(seconds, 3),
        "pods_per_s": rate,
    }
    return figures | {"cpu_s": None, "extender_cpu_s": None, "refused": None}


def _refused(stack: Stack) -> int:
    if not stack.extender.is_running():
        return 0
    found = _REFUSED.search(httpx2.get(f"{stack.extender.url}/metrics", timeout=30.0, trust_env=False).text)
    return int(float(found[1])) if found else 0


def _cpu(stack: Stack) -> Cpu:
    plane = stack.plane
    processes = {"etcd": plane.etcd, "api": plane.api_server, "extender": stack.extender, **plane.schedulers}
    return {name: _cpu_seconds(process.pid) for name, process in processes.items() if process.is_running()}


def _cpu_seconds(process_id: int) -> float:
    fields = Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND


def measure(nodes: int) -> list[Row]:
    """Return one row a scenario."""
    descriptions = [node_description(f"gpu-{number:04d}", PRODUCT, DEVICES) for number in range(nodes)]
    with tempfile.TemporaryDirectory(prefix="tangram-throughput-") as directory:
        plane = ControlPlane(binaries(), Path(directory), users=[EXTENDER])
        with plane, open_stack(plane, descriptions, {"TANGRAM_LOG_LEVEL": "warning"}) as stack:
            device_mib = next(iter(stack.hardware.values())).capacity_mib
            rows = [reason(stack, device_mib), run(stack, "whole", whole_pods(nodes), lambda: _cpu(stack))]
            rows.append(freed(stack, "whole-0"))
            _clear(stack)
            rows.append(run(stack, "fractions", mixed_pods(nodes, device_mib, random.Random(3)), lambda: _cpu(stack)))
            _clear(stack)
            stack.extender.stop()
            plane.schedulers["tangram"].stop()
            plane.start_scheduler(plain_configuration(), "stock")
            pods = whole_pods(nodes, "default-scheduler")
            rows.append(run(stack, "stock", pods, lambda: _cpu(stack)))
    return rows


def _clear(stack: Stack) -> None:
    with ThreadPoolExecutor(_CREATORS) as workers:
        list(workers.map(stack.delete, [each["metadata"]["name"] for each in stack.pods()]))
    wait_for("no pods are left", lambda: not stack.pods(), within_s=_PATIENCE_S)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; return 1 where something was left unbound that fits, or the limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--most-ratio", type=float)
    options = parser.parse_args(arguments)
    rows = measure(options.nodes)
    show("throughput", rows)
    whole, stock = rows[1], rows[-1]
    ratio = float(whole["seconds"] or 0) / max(float(stock["seconds"] or 0), 1e-9)
    print(f"whole devices took {ratio:.2f} times what kube-scheduler takes alone", file=sys.stderr)
    return int(whole["bound"] != whole["pods"] or (options.most_ratio is not None and ratio > options.most_ratio))


if __name__ == "__main__":
    sys.exit(main())
