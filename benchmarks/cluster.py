"""A large cluster for benchmarks: the product as a user starts it, on the simulated API server, with reports pushed.

Nodes of eight devices of eight products in turn, half full of fractions that were bound before the product started.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.client import KeepAliveClient
from extender.allocation import encode_allocation
from extender.hardware import devices_of
from extender.simulation.apiserver import SimulatedApiServer
from extender.simulation.apiserving import ServedApiServer
from extender.simulation.leash import Child
from extender.totals import advertised_totals
from node_agent.health import HealthTimes
from node_agent.pace import PaceTimes
from node_agent.report import Report
from node_agent.simulated_description import parse_description
from node_agent.simulated_node import SimulatedNode
from scoring.request import Allocation, Share, SharingMode

DEVICES = 8
PRODUCTS = ("T4", "V100", "A100", "L4", "L40S", "H100", "H200", "B200")
NAMESPACE = "bench"
_CPU_MILLI = 96_000
_HOST_MIB = 1_000_000
_HALF_MILLI = 250
_READY_S = 120.0
_CALM_PART, _CALM_S = 0.1, 3.0
"""Part of a core that the product uses at most when it has come to rest after its start, over so many seconds."""


@dataclass(slots=True)
class BenchCluster:
    """A running product. ``api`` is the API server's own object, in this process, and ``api_port`` where it serves."""

    port: int
    names: list[str]
    api: SimulatedApiServer
    process_id: int
    api_port: int = 0

    def cpu_seconds(self) -> float:
        """Return user and system time that the product has used."""
        fields = Path(f"/proc/{self.process_id}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def resident_mib(self) -> float:
        """Return the product's resident memory."""
        for line in Path(f"/proc/{self.process_id}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return 0.0

    def report(self, index: int, sequence: int, draw: random.Random, bookings_generation: int | None = None) -> bytes:
        """Return the next report of a node, with other loads than before; the generation is that of the last answer."""
        base = _base_report(self.names[index], PRODUCTS[index % len(PRODUCTS)])
        devices = tuple(
            msgspec.structs.replace(device, utilisation=round(draw.random(), 2), temperature_celsius=40)
            for device in base.devices
        )
        moved = {"sequence": sequence, "devices": devices, "bookings_generation": bookings_generation}
        return msgspec.json.encode(msgspec.structs.replace(base, **moved))


@contextlib.contextmanager
def bench_cluster(nodes: int, *, half_full: bool = True, seed: int = 1) -> Iterator[BenchCluster]:
    """Bring a cluster of ``nodes`` up until the product decides and has come to rest; all ends with the block."""
    draw = random.Random(seed)
    names = [f"node-{number:05d}-{draw.randrange(16**8):08x}" for number in range(nodes)]
    api = SimulatedApiServer()
    for number, name in enumerate(names):
        api.create("nodes", "", node_object(name, PRODUCTS[number % len(PRODUCTS)]))
        if half_full:
            for at, pod in enumerate(bound_pods(name, PRODUCTS[number % len(PRODUCTS)])):
                api.create("pods", NAMESPACE, pod | {"metadata": pod["metadata"] | {"name": f"p-{number}-{at}"}})
    with ServedApiServer(api) as served:
        port = free_port()
        child = Child("extender", product_environment(served.url, port))
        try:
            cluster = BenchCluster(port, names, api, child.process_id, int(served.url.rpartition(":")[2]))
            wait_until_ready(port)
            push_reports(cluster, draw)
            wait_until_calm(cluster)
            yield cluster
        finally:
            child.stop()


def product_environment(url: str, port: int) -> dict[str, str]:
    """Return the settings of a product on an API server, everything by HTTP on one port."""
    return {
        "TANGRAM_API_SERVER": url,
        "TANGRAM_HOST": "127.0.0.1",
        "TANGRAM_PORT": str(port),
        "TANGRAM_LOG_LEVEL": "error",
        "TANGRAM_STALE_AFTER_S": "3600",
        "TANGRAM_REPORTS_WAIT_S": "0",
    }


def wait_until_calm(cluster: BenchCluster) -> None:
    """Return when the product rests for some seconds after its start; TimeoutError after two minutes.

    Without that the work of a start would be measured; what is done every second or two counts.
    """
    deadline, used = time.monotonic() + _READY_S, float("-inf")
    while cluster.cpu_seconds() - used > _CALM_PART * _CALM_S:
        if time.monotonic() > deadline:
            msg = f"the product did not come to rest within {_READY_S:g} s"
            raise TimeoutError(msg)
        used = cluster.cpu_seconds()
        time.sleep(_CALM_S)


def push_reports(cluster: BenchCluster, draw: random.Random) -> None:
    """Let every node report once; RuntimeError for an answer that is not 200."""
    with KeepAliveClient(cluster.port) as client:
        for index in range(len(cluster.names)):
            answer = client.post("/v1/reports", cluster.report(index, 1, draw))
            if answer.status != 200:
                msg = f"report of {cluster.names[index]}: {answer.status} {answer.body[:300]!r}"
                raise RuntimeError(msg)


def wait_until_ready(port: int, path: str = "/readyz") -> None:
    """Return when the path answers 200; TimeoutError after two minutes."""
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as probe:
            probe.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            if probe.recv(64).startswith(b"HTTP/1.1 200"):
                return
        time.sleep(0.1)
    msg = f"the product was not ready within {_READY_S:g} s"
    raise TimeoutError(msg)


_REPORTS: dict[tuple[str, str], Report] = {}


def _base_report(name: str, product: str) -> Report:
    key = (name, product)
    if key not in _REPORTS:
        description = parse_description({"node": name, "devices": [{"product": product, "count": DEVICES}]})
        _REPORTS[key] = SimulatedNode(description, 0, PaceTimes(), HealthTimes(), lambda: 0.0).sweep()
    return _REPORTS[key]


def node_object(name: str, product: str = "") -> dict[str, object]:
    """Return a node as the API server lists it; with a product it carries its totals from a time before."""
    amounts = {"cpu": f"{_CPU_MILLI}m", "memory": f"{_HOST_MIB}Mi", "pods": "250"}
    if product:
        totals = advertised_totals(devices_of(_base_report(name, product)).values(), {})
        amounts |= {f"tangram.dev/{resource}": str(amount) for resource, amount in totals.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "tangram.dev/node": "true"}},
        "spec": {},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def bound_pods(node: str, product: str) -> Iterator[dict[str, object]]:
    """Yield four pods that fill half of the node: each a half of two of its devices."""
    devices = _base_report(node, product).devices
    for first in range(0, DEVICES, 2):
        shares = tuple(
            Share(
                device.uuid,
                (device.total_mib - device.reserved_mib) * 2 * _HALF_MILLI // 1000,
                2 * _HALF_MILLI,
                SharingMode.TIME_SLICING,
            )
            for device in devices[first : first + 2]
        )
        allocation = encode_allocation(Allocation((("main", shares),), "binpack"))
        yield pod_object("", {"tangram.dev/gpu": "2", "tangram.dev/gpu-compute": "100"}, 8000) | {
            "metadata": {"namespace": NAMESPACE, "annotations": {"tangram.dev/allocation": allocation}},
            "spec": pod_object("", {"tangram.dev/gpu": "2", "tangram.dev/gpu-compute": "100"}, 8000)["spec"]
            | {"nodeName": node},  # type: ignore[operator]
            "status": {"phase": "Running"},
        }


def pod_object(
    name: str, gpu: dict[str, str], cpu_milli: int, annotations: dict[str, str] | None = None
) -> dict[str, object]:
    """Return a pod of the size that real ones have: labels, probes, volumes and environment, about 5 KB of JSON."""
    environment = [{"name": f"SETTING_{number}", "value": f"value-{number:04d}"} for number in range(24)]
    volumes = [{"name": f"volume-{number}", "configMap": {"name": f"configuration-{number}"}} for number in range(6)]
    mounts = [{"name": f"volume-{number}", "mountPath": f"/etc/configuration/{number}"} for number in range(6)]
    resources = gpu | {"cpu": f"{cpu_milli}m", "memory": "16Gi"}
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10, "failureThreshold": 3}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {f"app.kubernetes.io/part-{number}": f"model-serving-{number}" for number in range(10)},
            "annotations": annotations or {},
        },
        "spec": {
            "schedulerName": "tangram-scheduler",
            "serviceAccountName": "default",
            "volumes": volumes,
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example.com/team/model-server:2026.11",
                    "args": ["--port=8080", "--model=/models/current", "--threads=8"],
                    "env": environment,
                    "volumeMounts": mounts,
                    "resources": {"requests": resources, "limits": resources},
                    "livenessProbe": probe,
                    "readinessProbe": probe,
                }
            ],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        },
    }


def encoded(value: object) -> bytes:
    """Return compact JSON, as Go's encoder writes it."""
    return json.dumps(value, separators=(",", ":")).encode()


def free_port() -> int:
    """Return a port on loopback that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
