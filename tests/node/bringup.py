"""Brings the product up on a node of its own, for a test run or for people: `python -m tests.node.bringup`."""

import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.controlplane.build import GoMissing, binaries
from tests.node.cluster import NodeCluster
from tests.node.machine import MachineMissing, check_rights
from tests.node.packages import PackagesMissing, packages
from tests.node.product import MPS_GPU, Product, install, write_archives
from tests.node.programs import PROGRAMS, program
from tests.nvml.driver import compiler

NEEDED = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "helm")
VALUES = {"runtimeClass.create": "true", "agent.mps.devices[0]": MPS_GPU}


def missing() -> str:
    """Say what this machine lacks for a node, empty for nothing. What can be built is built: minutes, once."""
    if compiler() is None:
        return "a node's stand-in driver needs a C compiler, and there is no cc, gcc or clang on PATH"
    try:
        check_rights()
        packages()
        binaries(NEEDED)
        for each in PROGRAMS:
            program(each)
    except (MachineMissing, PackagesMissing, GoMissing) as reason:
        return str(reason)
    return ""


@contextmanager
def product_on_a_node(directory: Path) -> Iterator[Product]:
    """Start a cluster and install the product with its default values; give it when it is ready to place pods."""
    unpacked, programs = packages(), binaries(NEEDED)
    archives = write_archives(directory / "images", unpacked, programs)
    with NodeCluster(directory, programs, unpacked) as cluster:
        product = install(cluster, programs, archives, VALUES)
        for archive in archives:
            archive.unlink()  # 600 MB that the node holds now
        product.wait_ready()
        yield product


def main() -> None:
    """Keep a node running until Ctrl-C, and say how to talk to it."""
    if reason := missing():
        raise SystemExit(reason)
    ended = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: ended.set())
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with tempfile.TemporaryDirectory(prefix="tangram-node-") as place, product_on_a_node(Path(place)) as product:
        kubeconfig = product.outer_kubeconfig()
        print(f"KUBECONFIG={kubeconfig} {product.binaries.path('kubectl')} get pods -A   (process {os.getpid()})")
        ended.wait()


if __name__ == "__main__":
    main()
