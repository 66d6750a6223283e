"""Devices that fault and pods that take more than they booked: told about the right pod, on the node's real cgroups."""

from tests.controlplane.api import wait_for
from tests.node.pods import NAMESPACE, Workload, container, pod
from tests.node.product import FAULTY_GPU, GPU, Product

_CONTAINED_FAULT = 94  # XID: out, a quiet minute, then two minutes of probation
_RETURNS_S = 240.0
_FAULTY = 4  # its place among the plain devices and MIG instances, and its NVML index


def test_fault_is_told_to_its_pods_and_keeps_new_ones_away(workload: Workload) -> None:
    product = workload.product
    workload.run(pod("victim", container("main", memory=1024), wishes={"gpu-uuid": FAULTY_GPU}))
    product.driver.announce(_FAULTY, _CONTAINED_FAULT)
    wait_for("the device is out", lambda: product.health(FAULTY_GPU) == "out", within_s=30)
    product.driver.forget_events()
    events = wait_for(
        "the pod is told", lambda: [each for each in workload.events("victim") if each["reason"] == "GpuFault"]
    )
    assert FAULTY_GPU in events[0]["message"]
    workload.create(pod("late", container("main", memory=1024), wishes={"gpu-uuid": FAULTY_GPU}))
    wait_for("the new pod is refused", lambda: "GPU" in refusal(workload, "late"))
    elsewhere = workload.run(pod("elsewhere", container("main", memory=1024)))
    assert FAULTY_GPU not in workload.seen(elsewhere)["main"].devices
    assert workload.pod("victim")["status"]["phase"] == "Running"
    product.cluster.kill_container(product.agent()["status"]["containerStatuses"][0]["containerID"])
    wait_for("another agent reports", lambda: product.agent()["status"]["containerStatuses"][0]["restartCount"])
    wait_for("it answers", lambda: product.agent_metrics("tangram_gpu_health"), within_s=60)
    assert product.health(FAULTY_GPU) != "healthy"  # the driver told of the fault once, to the agent that died


def test_faulty_device_comes_back_by_rule(product: Product) -> None:
    """Runs late (conftest): the quiet minutes pass while other tests run."""
    wait_for("the device is healthy again", lambda: product.health(FAULTY_GPU) == "healthy", within_s=_RETURNS_S)


def test_use_beyond_the_booking_is_told_of_the_right_pod(workload: Workload) -> None:
    product = workload.product
    modest = workload.run(pod("modest", container("main", memory=2048), wishes={"gpu-uuid": GPU}))
    greedy = workload.run(pod("greedy", container("main", memory=1024), wishes={"gpu-uuid": GPU}))
    pids = {each["metadata"]["name"]: pid_of(workload, each) for each in (modest, greedy)}
    product.driver.device(0, {"compute": f"{pids['modest']}:1500,{pids['greedy']}:3000", "used_mib": 4500})
    try:
        over = wait_for("overuse is measured", lambda: overuse(product), within_s=30)
        assert over == {("greedy", GPU): (3000 - 1024) << 20}
    finally:
        product.driver.device(0, {"compute": None, "used_mib": None})


def pid_of(workload: Workload, found: dict) -> int:
    """Return a process of a pod's first container, as the node and its driver count."""
    return workload.product.cluster.pids(found["status"]["containerStatuses"][0]["containerID"])[0]


def overuse(product: Product) -> dict[tuple[str, str], int]:
    """Return the bytes beyond the booking that the agent exports, by pod and device, zeros left out."""
    found = {}
    for sample in product.agent_metrics("tangram_gpu_memory_overuse_bytes"):
        assert sample.labels["namespace"] == NAMESPACE
        if sample.value:
            found[sample.labels["pod"], sample.labels["gpu_uuid"]] = int(sample.value)
    return found


def refusal(workload: Workload, name: str) -> str:
    """Return why the scheduler has not placed a pod, empty while it has not said."""
    conditions = workload.pod(name)["status"].get("conditions", [])
    return next((str(each["message"]) for each in conditions if each.get("reason") == "Unschedulable"), "")
