"""The main job: a real kube-scheduler packs pods onto fractions of the right devices of a mixed fleet."""

import random
import re
from collections.abc import Callable, Iterator

import pytest

from node_agent.simulated_builders import mixed_fleet
from tests.controlplane.api import Json, wait_for
from tests.controlplane.books import Hardware, booked, devices_of
from tests.controlplane.conftest import PlaneFactory
from tests.controlplane.kubelet import RUN_SECONDS
from tests.controlplane.stack import EXTENDER, NAMESPACE, Asked, Stack, advertised, open_stack, pod

NODES = 20
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
AMPERE = 7  # NVML_DEVICE_ARCH_AMPERE
Holds = Callable[[Hardware], bool]


@pytest.fixture(scope="module")
def running(start_control_plane: PlaneFactory) -> Iterator[Stack]:
    plane = start_control_plane(controller_manager=True, users=[EXTENDER])
    with open_stack(plane, list(mixed_fleet(NODES))) as stack:
        yield stack


@pytest.fixture
def stack(running: Stack) -> Iterator[Stack]:
    yield running
    running.clear()


WISHES: dict[str, tuple[dict[str, str], Holds]] = {
    "volta": ({"gpu-architecture": "volta"}, lambda each: each.product == "V100"),
    "ampere-or-newer": ({"gpu-architecture": ">=ampere"}, lambda each: each.facts.architecture >= AMPERE),
    "two-generations": ({"gpu-architecture": "pascal, turing"}, lambda each: each.product in ("P100", "T4")),
    "not-kepler": ({"gpu-architecture": "!kepler"}, lambda each: each.product != "K80"),
    "k80": ({"gpu-product": "K80"}, lambda each: each.product == "K80"),
    "l4-and-not-l40s": ({"gpu-product": "L4"}, lambda each: each.product == "L4"),
    "product-glob": ({"gpu-product": "H*, !H100*"}, lambda each: each.product == "H200"),
    "nvml-name": ({"gpu-product": "Tesla T4"}, lambda each: each.product == "T4"),
    "int8": ({"gpu-features": "int8"}, lambda each: each.facts.compute_capability >= (7, 2)),
    "fp8": ({"gpu-features": "fp8"}, lambda each: each.facts.compute_capability >= (8, 9)),
    "large": ({"gpu-total-memory": ">=40Gi"}, lambda each: each.facts.total_mib >= 40960 and not each.mig_profile),
    "capability": ({"gpu-compute-capability": ">=8.0,<9"}, lambda each: each.facts.compute_capability[0] == 8),
    "old-driver": ({"gpu-driver": "<500"}, lambda each: each.facts.driver.startswith("470")),
    "new-cuda": ({"gpu-cuda": ">=12.4"}, lambda each: each.facts.cuda == "13.0"),
    "mig-profile": ({"mig-profile": "1g.10gb"}, lambda each: each.mig_profile == "1g.10gb"),
}


def test_pods_run_only_on_devices_that_they_asked_for(stack: Stack) -> None:
    copies = 3
    for name, (wishes, _) in WISHES.items():
        asked: Asked = {"devices": 1} if "mig-profile" in wishes else {"memory": 2000}
        stack.create(*(pod(f"{name}-{number}", wishes=wishes, **asked) for number in range(copies)))
    wrong = {}
    for each in stack.wait_all(copies * len(WISHES)):
        name = each["metadata"]["name"]
        _, holds = WISHES[name.rpartition("-")[0]]
        (uuid,) = devices_of(each)
        device = stack.hardware[uuid]
        if not holds(device) or device.node != each["spec"]["nodeName"]:
            wrong[name] = device
    assert not wrong
    stack.check_books()


def test_pod_runs_on_exactly_the_device_that_it_names(stack: Stack) -> None:
    uuid = next(uuid for uuid, device in stack.hardware.items() if device.node == "gpu-mixed-11")
    stack.create(pod("exact", wishes={"gpu-uuid": uuid}, compute=10))
    assert devices_of(stack.wait_phase("exact")) == [uuid]


def test_three_hundred_fractions_run_and_no_device_is_over(stack: Stack) -> None:
    draw = random.Random(7)
    for number in range(300):
        kinds: tuple[Asked, ...] = (
            {"memory": draw.randrange(500, 8000)},
            {"compute": draw.randrange(1, 60)},
            {"memory": draw.randrange(500, 12000), "compute": draw.randrange(1, 40)},
        )
        stack.create(pod(f"fraction-{number}", **draw.choice(kinds)))
    stack.wait_all(300, within_s=150)
    books = stack.check_books()
    assert sum(len(shares) for shares in books.values()) == 300
    assert max(len(shares) for shares in books.values()) > 2


def test_pod_that_fits_nowhere_gets_an_event_with_grouped_reasons(stack: Stack) -> None:
    stack.create(pod("huge", memory=190_000))

    def event() -> str | None:
        fields = "involvedObject.name=huge,reason=FailedScheduling"
        found = stack.api.items(f"/api/v1/namespaces/{NAMESPACE}/events", fieldSelector=fields)
        return str(found[0]["message"]) if found else None

    message = wait_for("an event says why", event)
    first = message.removeprefix(f"0/{NODES} nodes are available: ").partition(". ")[0]
    groups = {reason: int(count) for count, reason in re.findall(r"(\d+) (.+?)(?:, |$)", first)}
    large = sum(advertised(each)["gpu-memory"] >= 190_000 for each in stack.api.items("/api/v1/nodes"))
    assert groups == {
        "request is larger than any GPU of the node": large,
        "Insufficient tangram.dev/gpu-memory": NODES - large,
    }, message


def test_waiting_pod_runs_within_seconds_of_a_deletion(stack: Stack) -> None:
    whole = {"gpu-product": "P100*"}
    stack.create(*(pod(f"whole-{number}", wishes=whole, devices=4) for number in range(2)))
    stack.wait_all(2)
    stack.create(pod("waiting", wishes=whole, devices=4))
    stack.wait_refusal("waiting", "2 too few GPUs that nobody uses")
    stack.delete("whole-0", grace_s=None)
    stack.wait_phase("waiting", within_s=10)
    stack.check_books()


def test_jobs_that_succeed_free_their_share(stack: Stack) -> None:
    template = pod("unused", wishes={"gpu-product": "P100*"}, annotations={RUN_SECONDS: "0.3"}, devices=4)
    template["metadata"].pop("name")
    template["spec"]["restartPolicy"] = "Never"
    spec = {"completions": 6, "parallelism": 6, "template": template}
    stack.api.create(JOBS, {"metadata": {"name": "batch"}, "spec": spec})
    wait_for("all six succeeded", lambda: stack.api.get(f"{JOBS}/batch")["status"].get("succeeded") == 6, within_s=60)
    assert len(stack.pods()) == 6
    wait_for("nobody holds anything", lambda: not booked(stack.fleet()))
    stack.api.delete(f"{JOBS}/batch")


def expected_totals(stack: Stack, node: str) -> dict[str, int]:
    devices = [device for device in stack.hardware.values() if device.node == node]
    return {
        "gpu": 100 * len(devices),
        "gpu-memory": sum(device.capacity_mib for device in devices),
        "gpu-compute": 100 * len(devices),
    }


def test_nodes_advertise_the_sums_of_their_devices(stack: Stack) -> None:
    nodes = {each["metadata"]["name"]: each for each in stack.api.items("/api/v1/nodes")}
    assert {name: advertised(each) for name, each in nodes.items()} == {
        name: expected_totals(stack, name) for name in nodes
    }


def test_totals_that_kubelet_zeroed_are_asserted_again(stack: Stack) -> None:
    path, expected = "/api/v1/nodes/gpu-t4-3", expected_totals(stack, "gpu-t4-3")
    stack.nodes.reregister("gpu-t4-3")

    def again() -> Json | None:
        node = stack.api.get(path)
        return node if advertised(node, "capacity") == advertised(node) == expected else None

    assert wait_for("the totals are back", again)
