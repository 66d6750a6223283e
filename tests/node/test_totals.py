"""Node totals: kubelet keeps what the extender advertised, refuses what exceeds it, and never evicts for our sake."""

from tests.controlplane.api import Json, PatchKind, wait_for
from tests.node.cluster import NODE
from tests.node.pods import PREFIX, Workload, container, pod
from tests.node.product import AGENTS, OTHER_GPU, Product

_NVML_GPU_IS_LOST = 15
_AGENTS = f"/apis/apps/v1/namespaces/{AGENTS}/daemonsets/tangram-agent"
_ELSEWHERE = {"nodeSelector": {"tangram.test/nowhere": "true"}}


def totals(product: Product) -> dict[str, dict[str, str]]:
    status = product.cluster.node()["status"]
    ours = {
        where: {k: v for k, v in status[where].items() if k.startswith(PREFIX)} for where in ("capacity", "allocatable")
    }
    assert ours["capacity"]
    return ours


def heartbeat(product: Product) -> str:
    conditions = product.cluster.node()["status"]["conditions"]
    return next(str(each["lastHeartbeatTime"]) for each in conditions if each["type"] == "Ready")


def test_totals_survive_heartbeats_and_a_restart_of_kubelet(product: Product) -> None:
    before, beat = totals(product), heartbeat(product)
    wait_for("kubelet writes the node's status", lambda: heartbeat(product) != beat, within_s=30)
    assert totals(product) == before
    product.cluster.restart_kubelet()
    assert totals(product) == before


def test_pod_over_the_totals_is_refused_by_kubelet(workload: Workload) -> None:
    # Past our webhooks, our policies and our scheduler: kubelet is the last to count.
    path = f"/api/v1/namespaces/{AGENTS}/pods"
    held = int(totals(workload.product)["allocatable"][f"{PREFIX}/gpu-memory"])
    manifest = pod("too-large", container("main", memory=held + 1, compute=1), schedulerName="nobody")
    with workload.product.no_webhooks():
        workload.api.create(path, manifest)
    target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
    workload.api.create(f"{path}/too-large/binding", {"metadata": {"name": "too-large"}, "target": target})

    def reason() -> str:
        return str(workload.api.get(f"{path}/too-large")["status"].get("reason", ""))

    try:
        assert wait_for("kubelet judges the pod", reason) == f"OutOf{PREFIX}/gpu-memory"
        found = workload.api.get(f"{path}/too-large")
        assert found["status"]["phase"] == "Failed"
        assert not found["status"].get("containerStatuses")
    finally:
        workload.api.delete(f"{path}/too-large", grace_s=0)


def test_kubelet_that_restarts_while_a_device_is_lost_evicts_nobody(workload: Workload) -> None:
    product = workload.product
    before = totals(product)
    found = workload.run(pod("stays", container("main", memory=2048), wishes={"gpu-uuid": OTHER_GPU}))
    product.driver.device(1, {"all": _NVML_GPU_IS_LOST})
    try:
        wait_for("the device is out", lambda: product.health(OTHER_GPU) == "lost", within_s=30)
        product.cluster.restart_kubelet()
        assert_stays(workload, found)
        assert totals(product) == before
    finally:
        product.driver.device(1, {"all": None})  # on probation for two minutes from now on


def test_kubelet_that_restarts_while_reports_are_missing_evicts_nobody(workload: Workload) -> None:
    product = workload.product
    before = totals(product)
    found = workload.run(pod("stays", container("main", memory=2048, compute=5), wishes={"gpu-sharing": "mps"}))
    template = {"spec": {"template": {"spec": _ELSEWHERE}}}
    product.api.patch(_AGENTS, template, PatchKind.MERGE)
    try:
        wait_for("the agent is gone", lambda: not product.agents(), within_s=60)
        product.cluster.restart_kubelet()
        assert_stays(workload, found)
        assert totals(product) == before
    finally:
        product.api.patch(_AGENTS, {"spec": {"template": {"spec": {"nodeSelector": None}}}}, PatchKind.MERGE)
    product.wait_ready()


def assert_stays(workload: Workload, before: Json) -> None:
    """Check that a pod runs, in the containers in which it ran before."""
    after = workload.pod(before["metadata"]["name"])
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["phase"] == "Running"
    ids = [[each["containerID"] for each in found["status"]["containerStatuses"]] for found in (before, after)]
    assert ids[0] == ids[1]
