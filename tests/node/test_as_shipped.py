"""What the chart says about rights, limits and probes holds for the processes that really run."""

import os
import re

import pytest

from tests.controlplane.api import Json, wait_for
from tests.node.documents import write_between
from tests.node.product import AGENTS, SYSTEM, Product

_USED_AT_MOST = 0.7  # of a memory limit, by a product that places a few pods
_FILTERED = 2  # Seccomp in /proc/<pid>/status: by a filter
_RESTARTED_S = 90.0
_CONTAINERS = ("extender", "kube-scheduler", "agent")


def pod_of(product: Product, name: str) -> Json:
    return product.agent() if name == "agent" else product.extenders()[0]


def status_of(product: Product, name: str) -> dict[str, str]:
    """Return what the kernel says of a container's first process."""
    pid = product.cluster.pids(container_id(pod_of(product, name), name))[0]
    lines = product.cluster.machine.run("cat", f"/proc/{pid}/status").output.splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def container_id(found: Json, name: str) -> str:
    statuses = (*found["status"].get("initContainerStatuses", ()), *found["status"]["containerStatuses"])
    return next(str(each["containerID"]) for each in statuses if each["name"] == name)


@pytest.mark.parametrize(("name", "user"), [("extender", "65532"), ("kube-scheduler", "65532"), ("agent", "0")])
def test_process_has_no_right_that_it_does_not_need(product: Product, name: str, user: str) -> None:
    status = status_of(product, name)
    assert status["Uid"].split() == [user] * 4
    assert {int(status[kind], 16) for kind in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb")} == {0}
    assert status["NoNewPrivs"] == "1"
    assert int(status["Seccomp"]) == _FILTERED


def test_extenders_run_where_pod_security_is_restricted(product: Product) -> None:
    labels = product.api.get(f"/api/v1/namespaces/{SYSTEM}")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert {each["status"]["phase"] for each in product.extenders()} == {"Running"}


def test_memory_limits_leave_room(product: Product) -> None:
    lines = ["| container | memory, MiB | limit, MiB |", "|---|---|---|"]
    for name in _CONTAINERS:
        used, limit = memory_mib(product, name)
        assert used < _USED_AT_MOST * limit, f"{name} uses {used} of {limit} MiB"
        lines.append(f"| {name} | {used} | {limit} |")
    if os.environ.get("WRITE_DOCS"):
        write_between("end-to-end.md", "tests/node/test_as_shipped.py", "\n".join(lines) + "\n")


def memory_mib(product: Product, name: str) -> tuple[int, int]:
    """Return what a container's cgroup holds beside the page cache, and its limit."""
    pid = product.cluster.pids(container_id(pod_of(product, name), name))[0]
    groups = product.cluster.machine.run("cat", f"/proc/{pid}/cgroup").output
    first = re.search(r"^\d+:memory:(.*)$", groups, re.MULTILINE)
    unified = re.search(r"^0::(.*)$", groups, re.MULTILINE)
    assert unified
    place = f"/sys/fs/cgroup/memory{first[1]}" if first else f"/sys/fs/cgroup{unified[1]}"
    stat, limit = ("total_rss", "memory.limit_in_bytes") if first else ("anon", "memory.max")
    told = dict(line.split() for line in product.cluster.machine.run("cat", f"{place}/memory.stat").output.splitlines())
    return int(told[stat]) >> 20, int(product.cluster.machine.run("cat", f"{place}/{limit}").output) >> 20


def test_extender_that_hangs_is_restarted_by_its_liveness_probe(product: Product) -> None:
    acting = product.lease_holder()
    (other,) = [each for each in product.extenders() if each["metadata"]["name"] != acting]
    name, before = other["metadata"]["name"], container_id(other, "extender")
    for pid in product.cluster.pids(before):
        product.cluster.machine.run("kill", "-STOP", str(pid))
    path = f"/api/v1/namespaces/{SYSTEM}/pods/{name}"
    wait_for(
        "the container is another",
        lambda: container_id(product.api.get(path), "extender") != before,
        within_s=_RESTARTED_S,
    )
    product.wait_ready()


def test_agents_namespace_is_privileged_for_the_host_s_process_ids_and_paths_only(product: Product) -> None:
    labels = product.api.get(f"/api/v1/namespaces/{AGENTS}")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
    spec = product.agent()["spec"]
    assert spec["hostPID"]
    assert not spec.get("hostNetwork")
    assert not spec.get("hostIPC")
    paths = {each["hostPath"]["path"] for each in spec["volumes"] if "hostPath" in each}
    assert paths == {"/var/lib/kubelet/pod-resources", "/run/tangram/agent", "/run/tangram/mps"}
