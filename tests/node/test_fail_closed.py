"""What containers get when something is missing, forged or asked for past us: nothing. A table in the docs."""

import json
from collections.abc import Iterator

import pytest

from tests.controlplane.api import ApiError, Json, PatchKind, wait_for
from tests.node.documents import Table
from tests.node.pods import PODS, PREFIX, Seen, Workload, container, pod
from tests.node.product import AGENTS, DEVICES, GPU, OTHER_GPU

_TABLE = Table("security.md", "tests/node/test_fail_closed.py", ("what comes", "what the pod gets"), rows=9)
_VISIBLE = "NVIDIA_VISIBLE_DEVICES"


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[Table]:
    yield _TABLE
    _TABLE.check()


def by_hand(name: str, value: str, *, managed_by_us: bool = False, **security: object) -> Json:
    """Return a pod whose author names devices in the variable that NVIDIA's runtime reads."""
    asked = {"memory": 1024} if managed_by_us else {}
    main = container("main", **asked) | {"env": [{"name": _VISIBLE, "value": value}]}
    if security:
        main["securityContext"] = security
    return pod(name, main, runtimeClassName="nvidia")


def refusal(workload: Workload, manifest: Json) -> str:
    """Create a pod that must be refused and return the words."""
    with pytest.raises(ApiError) as caught:
        workload.create(manifest)
    return caught.value.message


def test_no_allocation_means_no_device(workload: Workload) -> None:
    # Only the agents' namespace is exempt from the policies: nobody else can have such a pod at all.
    product, path = workload.product, f"/api/v1/namespaces/{AGENTS}/pods"
    manifest = pod("unallocated", container("main", ends=True), nodeName="node-a", restartPolicy="Never")
    manifest["spec"]["runtimeClassName"] = "nvidia"
    field = {"fieldPath": f"metadata.annotations['{PREFIX}/devices-main']"}
    manifest["spec"]["containers"][0]["env"] = [{"name": _VISIBLE, "valueFrom": {"fieldRef": field}}]
    product.api.create(path, manifest)
    told = wait_for("the pod has told", lambda: product.logs(AGENTS, "unallocated", "main"))
    product.api.delete(f"{path}/unallocated", grace_s=0)
    assert "visible=[] marks=[]" in told
    _TABLE.add("a variable that refers to an allocation, and no allocation", "an empty variable, no device")


def test_device_that_is_gone_is_not_replaced_by_another(workload: Workload) -> None:
    product = workload.product
    with product.devices(tuple(uuid for uuid in DEVICES if uuid != OTHER_GPU)):
        workload.create(pod("gone", container("main", memory=1024), wishes={"gpu-uuid": OTHER_GPU}))
        words = wait_for("the container is refused", lambda: waiting_words(workload.pod("gone")))
    assert f"unresolvable CDI devices nvidia.com/gpu={OTHER_GPU}" in words
    assert workload.seen(workload.wait("gone"))["main"].devices == (OTHER_GPU,)
    _TABLE.add("an allocation of a device that is gone", "not started (`unresolvable CDI devices`), until it is back")


def waiting_words(found: Json) -> str:
    """Return why a pod's container could not be started, empty while that is not known."""
    for status in found["status"].get("containerStatuses", ()):
        for state in (status["state"], status.get("lastState", {})):
            for reason in state.values():
                if "CDI" in str(reason.get("message", "")):
                    return str(reason["message"])
    return ""


def test_forged_allocation_is_refused(workload: Workload) -> None:
    key = f"{PREFIX}/devices-main"
    forged = pod("forged", container("main", memory=1024), wishes={"devices-main": OTHER_GPU})
    assert f"annotation {key}" in refusal(workload, forged)
    with workload.product.no_webhooks():
        assert "devices-*" in refusal(workload, pod("forged", container("main"), wishes={"devices-main": OTHER_GPU}))
    _TABLE.add(f"`{key}` set by the author", "refused, by policy also without our webhooks")
    workload.run(pod("honest", container("main", memory=1024)))
    with pytest.raises(ApiError, match="stay as"):
        workload.api.patch(f"{PODS}/honest", {"metadata": {"annotations": {key: OTHER_GPU}}}, PatchKind.MERGE)
    _TABLE.add("the same on a running pod", "refused by policy")


def test_forged_allocation_that_came_past_everything_is_overwritten(workload: Workload) -> None:
    # No webhooks, and in the one namespace without policies.
    product, path = workload.product, f"/api/v1/namespaces/{AGENTS}/pods"
    forged = pod("forged", container("main", memory=1024), wishes={"devices-main": OTHER_GPU, "devices-x": OTHER_GPU})
    field = {"fieldPath": f"metadata.annotations['{PREFIX}/devices-main']"}
    forged["spec"]["containers"][0]["env"] = [{"name": _VISIBLE, "valueFrom": {"fieldRef": field}}]
    forged["spec"] |= {"runtimeClassName": "nvidia", "schedulerName": "tangram-scheduler"}
    with product.no_webhooks():
        product.api.create(path, forged)
    try:
        told = wait_for("the pod has told", lambda: product.logs(AGENTS, "forged", "main"))
        written = product.api.get(f"{path}/forged")["metadata"]["annotations"]
    finally:
        product.api.delete(f"{path}/forged", grace_s=0)
    assert f"visible=[{GPU}] marks=[{GPU} ]" in told
    assert (written[f"{PREFIX}/devices-main"], written[f"{PREFIX}/devices-x"]) == (GPU, "")
    _TABLE.add("the same, past webhooks and policies", "its own device: the Binding overwrites every key of ours")


@pytest.mark.parametrize("value", ["all", GPU])
def test_variable_set_by_the_author_is_refused(workload: Workload, value: str) -> None:
    assert _VISIBLE in refusal(workload, by_hand("own", value, managed_by_us=True))
    assert _VISIBLE in refusal(workload, by_hand("own", value))
    with workload.product.no_webhooks():
        assert _VISIBLE in refusal(workload, by_hand("own", value, managed_by_us=True))
        assert _VISIBLE in refusal(workload, by_hand("own", value))
    if value == "all":
        _TABLE.add(f"`{_VISIBLE}` set by the author, with our webhooks", "refused")
        _TABLE.add(f"`{_VISIBLE}` set by the author, without our webhooks", "refused by policy")


def test_pod_that_asks_while_the_webhooks_are_gone_is_refused(workload: Workload) -> None:
    with workload.product.no_webhooks():
        assert _VISIBLE in refusal(workload, pod("unmutated", container("main", memory=1024)))
    _TABLE.add(
        "a pod that asks for GPUs, without our webhooks", "refused by policy: it says nothing about what it sees"
    )


def test_privileged_pod_gets_no_device_by_its_variable_but_every_node_of_the_host(workload: Workload) -> None:
    words = refusal(workload, by_hand("privileged", "all", privileged=True))
    assert _VISIBLE in words
    inside = container("main", then="ls /dev | wc -l")
    found = workload.run(pod("privileged", inside | {"securityContext": {"privileged": True}}))
    assert workload.seen(found)["main"] == Seen("", (), ())
    plain = workload.run(pod("plain", inside))
    assert devices_in(workload, found) > devices_in(workload, plain)
    _TABLE.add(
        "a privileged pod", "refused with the variable; else every device file of the host: Pod Security keeps it out"
    )


def devices_in(workload: Workload, found: Json) -> int:
    """Return how many device files a container sees, which it wrote after what `seen` reads."""
    told = wait_for(
        "the container counted", lambda: workload.product.logs("default", found["metadata"]["name"], "main").split()[-1]
    )
    return int(json.loads(told))
