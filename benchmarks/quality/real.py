"""``python -m benchmarks.quality.real``: a workload through a real kube-scheduler, beside the benchmark's own runs.

    python -m benchmarks.quality.real [--workload default] [--every 24] [--seed 42]

Every n-th node of the trace stands on a real control plane (built once, needs Go) with simulated kubelets and agents.
kube-scheduler asks the extender about every pod, and pods come one after the other until they have asked for all GPUs;
one that is told why it cannot run is lost and deleted, as in the benchmark. The undisclosed models G2 and G3 are A100s
here. Beside it the same arrivals on the same nodes by the benchmark, with the same mix known beforehand.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.quality.cluster import Cluster
from benchmarks.quality.data import folder
from benchmarks.quality.ledger import Ledger
from benchmarks.quality.manifest import manifest_of
from benchmarks.quality.product import mix_of
from benchmarks.quality.runs import Run
from benchmarks.quality.trace import TraceNode, TracePod, arrivals, read_nodes, read_pods
from benchmarks.results import Row, show
from extender.mix_file import encode_mix
from extender.scheduler_config import SCHEDULER_NAME, scheduler_configuration
from node_agent.simulated_builders import node_description
from tests.controlplane.api import Json, wait_for
from tests.controlplane.build import binaries
from tests.controlplane.kubelet import HollowNode
from tests.controlplane.plane import ControlPlane
from tests.controlplane.stack import EXTENDER, IMPATIENT, Stack, open_stack

SIMULATED = {
    "P100": ("P100", "P100*"),
    "V100M16": ("V100-16GB", "V100-SXM2-16GB"),
    "V100M32": ("V100", "V100-SXM2-32GB"),
    "T4": ("T4", "T4"),
    "A10": ("A10", "A10"),
    "G2": ("A100-40GB", "A100*40GB"),
    "G3": ("A100", "A100*80GB"),
}
"""Model of the trace -> what the simulated agents call it, and how a pod asks for it."""
OWN_SEEDS = 5
_DECIDED_WITHIN_S = 30.0


def through_scheduler(nodes: Sequence[TraceNode], order: Sequence[TracePod], mix: bytes) -> tuple[float, int]:
    """Return per cent of the GPUs allocated when all pods of ``order`` have come, and how many of them were lost."""
    names = [f"{node.name}-{number}" for number, node in enumerate(nodes)]
    descriptions = [
        node_description(name, SIMULATED[node.model][0], node.cards) for name, node in zip(names, nodes, strict=True)
    ]
    kubelets = [
        HollowNode(name, cpu=f"{node.cpu_milli}m", memory=f"{node.memory_mib}Mi")
        for name, node in zip(names, nodes, strict=True)
    ]
    with tempfile.TemporaryDirectory(prefix="tangram-quality-") as directory:
        file = Path(directory) / "mix.json"
        file.write_bytes(mix)
        plane = ControlPlane(binaries(), Path(directory), users=[EXTENDER])
        settings = {"TANGRAM_LOG_LEVEL": "warning", "TANGRAM_MIX_FILE": str(file)}
        with plane, open_stack(plane, descriptions, settings, with_scheduler=False, kubelets=kubelets) as stack:
            configuration = scheduler_configuration(stack.extender.url, election={"leaderElect": False}, every_pod=True)
            plane.start_scheduler(configuration | IMPATIENT, "tangram")
            allocated = lost = 0
            for number, pod in enumerate(order):
                placed = _placed(stack, pod, f"pod-{number}")
                allocated, lost = allocated + placed * pod.gpu_milli, lost + (not placed)
                print(f"\r{number + 1} of {len(order)} pods, {lost} lost", end="", file=sys.stderr, flush=True)
            stack.check_books()
    print(file=sys.stderr)
    return 100 * allocated / Ledger(nodes).capacity_milli, lost


def _placed(stack: Stack, pod: TracePod, name: str) -> bool:
    """Create a pod and wait until it has a node, or was told why not; then it is deleted."""
    manifest = manifest_of(pod, name, {model: asked for model, (_, asked) in SIMULATED.items()})
    manifest["spec"]["schedulerName"] = SCHEDULER_NAME
    stack.create(manifest)

    def decided() -> Json | None:
        found = stack.pod(name)
        told = any(each.get("reason") == "Unschedulable" for each in found["status"].get("conditions", []))
        return found if found["spec"].get("nodeName") or told else None

    found = wait_for(f"pod {name} is decided on", decided, within_s=_DECIDED_WITHIN_S)
    if found["spec"].get("nodeName"):
        return True
    stack.delete(name)
    return False


def by_benchmark(
    workload: str, nodes: Sequence[TraceNode], pods: list[TracePod], order: Sequence[TracePod], policy: str, seed: int
) -> tuple[float, int]:
    """Return the same of the benchmark's own run; ``seed`` draws among equals."""
    cluster = Cluster(Run(folder(), workload, policy, seed), nodes, pods)
    lost = sum(not cluster.arrive(pod, math.inf) for pod in order)
    return 100 * cluster.ledger.allocated_milli / cluster.ledger.capacity_milli, lost


def until_full(order: Sequence[TracePod], capacity_milli: int) -> list[TracePod]:
    """Return the arrivals until they have asked for all GPUs."""
    asked, taken = 0, []
    for pod in order:
        if asked >= capacity_milli:
            break
        asked += pod.gpu_milli
        taken.append(pod)
    return taken


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print one row each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workload", default="default")
    parser.add_argument("--every", type=int, default=24)
    parser.add_argument("--seed", type=int, default=42)
    chosen = parser.parse_args(arguments)
    nodes = read_nodes(folder())[:: chosen.every]
    pods = read_pods(folder(), chosen.workload)
    order = until_full(arrivals(pods, nodes, random.Random(chosen.seed)), Ledger(nodes).capacity_milli)
    rows = [_row("kube-scheduler", [through_scheduler(nodes, order, encode_mix(mix_of(pods)))])]
    for policy in ("binpack", "FGD", "BestFit"):
        seeds = range(chosen.seed, chosen.seed + OWN_SEEDS)
        found = [by_benchmark(chosen.workload, nodes, pods, order, policy, seed) for seed in seeds]
        rows.append(_row(f"benchmark, {policy}", found))
    show("quality-real", [{"workload": chosen.workload, "nodes": len(nodes), "pods": len(order)} | row for row in rows])
    return 0


def _row(by: str, found: Sequence[tuple[float, int]]) -> Row:
    allocated = [each for each, _ in found]
    return {
        "by": by,
        "runs": len(found),
        "unallocated_percent": round(100 - statistics.fmean(allocated), 2),
        "least": round(100 - max(allocated), 2),
        "most": round(100 - min(allocated), 2),
        "lost_pods": round(statistics.fmean(lost for _, lost in found), 1),
    }


if __name__ == "__main__":
    sys.exit(main())
