"""Every kind of pod: what its containers see is what its annotation, the books and the command line say."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from tests.controlplane.api import Json, PatchKind, wait_for
from tests.node.documents import Table
from tests.node.pods import Seen, Workload, allotted, container, pod
from tests.node.product import GREEDY, MPS_ROOT

_MPS = {"volumeMounts": [{"name": "mps", "mountPath": MPS_ROOT}]}
_HEAD = ("pod", "container", "`NVIDIA_VISIBLE_DEVICES`", "devices in it")
_TABLE = Table("end-to-end.md", "tests/node/test_scenarios.py", _HEAD, rows=16)


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[Table]:
    yield _TABLE
    _TABLE.check()


@dataclass(frozen=True)
class Scenario:
    """A kind of pod; `made_by` is the collection of the object that makes it, where it is not created itself."""

    words: str
    manifest: Json
    phase: str = "Running"
    made_by: str = ""
    checks: Callable[[dict[str, Seen]], None] = field(default=lambda seen: None)


def _template(manifest: Json, **spec: object) -> Json:
    labels = {"app": manifest["metadata"]["name"]}
    template = {"metadata": {"labels": labels, **_annotations(manifest)}, "spec": manifest["spec"]}
    return {"metadata": {"name": manifest["metadata"]["name"]}, "spec": {"template": template, **spec}}


def _annotations(manifest: Json) -> Json:
    return {"annotations": manifest["metadata"]["annotations"]}


def _selected(manifest: Json, **spec: object) -> Json:
    return _template(manifest, selector={"matchLabels": {"app": manifest["metadata"]["name"]}}, **spec)


def _has_limits(seen: dict[str, Seen]) -> None:
    (device,) = seen["main"].devices
    assert seen["main"].mps == (
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=4096M",
        f"CUDA_MPS_PIPE_DIRECTORY={MPS_ROOT}/{device}/pipe",
    )


def _sees_nothing_beside(seen: dict[str, Seen]) -> None:
    assert seen["beside"] == Seen("void", (), ())


_SIDECAR = {"restartPolicy": "Always"}
SCENARIOS = {
    "fraction": Scenario("8 GiB of a device", pod("fraction", container("main", memory=8192))),
    "two-devices": Scenario("two devices, 8 GiB of each", pod("two-devices", container("main", gpu=2, memory=16384))),
    "whole": Scenario("a whole device", pod("whole", container("main", gpu=1))),
    "two-containers": Scenario(
        "two containers, more than one device can give them",
        pod("two-containers", container("a", memory=60_000), container("b", memory=50_000)),
    ),
    "greedy-image": Scenario(
        "a container without GPU whose image says `all`",
        pod("greedy-image", container("main", memory=1024), container("beside", image=GREEDY)),
        checks=_sees_nothing_beside,
    ),
    "init": Scenario(
        "an init container and a main one",
        pod("init", container("main", memory=2048), initContainers=[container("first", memory=4096, ends=True)]),
    ),
    "sidecar": Scenario(
        "a sidecar and a main container",
        pod("sidecar", container("main", memory=2048), initContainers=[container("side", memory=1024) | _SIDECAR]),
    ),
    "mig": Scenario(
        "a MIG instance by profile", pod("mig", container("main", gpu=1), wishes={"mig-profile": "1g.10gb"})
    ),
    "mps": Scenario(
        "a share under MPS",
        pod(
            "mps",
            container("main", memory=4096, compute=25, then="cat $CUDA_MPS_PIPE_DIRECTORY/alive") | _MPS,
            wishes={"gpu-sharing": "mps"},
            volumes=[{"name": "mps", "hostPath": {"path": MPS_ROOT}}],
        ),
        checks=_has_limits,
    ),
    "job": Scenario(
        "a Job",
        _template(pod("job", container("main", memory=2048, ends=True), restartPolicy="Never")),
        phase="Succeeded",
        made_by="/apis/batch/v1/namespaces/default/jobs",
    ),
    "daemon-set": Scenario(
        "a DaemonSet",
        _selected(pod("daemon-set", container("main", memory=512))),
        made_by="/apis/apps/v1/namespaces/default/daemonsets",
    ),
    "deployment": Scenario(
        "a Deployment",
        _selected(pod("deployment", container("main", memory=1024))),
        made_by="/apis/apps/v1/namespaces/default/deployments",
    ),
}


def create(workload: Workload, name: str, scenario: Scenario) -> Json:
    """Create what a scenario is about, and return its pod when it has come as far as it should."""
    if not scenario.made_by:
        return workload.run(scenario.manifest, scenario.phase)
    workload.api.create(scenario.made_by, scenario.manifest)

    def probe() -> str | None:
        names = [each["metadata"]["name"] for each in workload.pods()]
        return next((each for each in names if each.startswith(f"{name}-")), None)

    return workload.wait(wait_for(f"{name} has a pod", probe), scenario.phase)


@pytest.mark.parametrize("name", SCENARIOS)
def test_containers_see_what_annotation_books_and_command_line_say(workload: Workload, name: str) -> None:
    scenario = SCENARIOS[name]
    found = create(workload, name, scenario)
    try:
        seen = workload.seen(found)
        told = allotted(found)
        for each, sight in seen.items():
            assert sight.devices == told.get(each, ())
            assert sight.visible in ("void", ",".join(sight.devices))
        scenario.checks(seen)
        if scenario.phase == "Running":
            check_books(workload, found)
        add_rows(scenario, seen)
    finally:
        if scenario.made_by:
            workload.api.request("DELETE", f"{scenario.made_by}/{name}", query={"propagationPolicy": "Background"})


def test_rollout_gives_the_new_pod_a_share_and_takes_the_old_one_back(workload: Workload) -> None:
    scenario = SCENARIOS["deployment"]
    old = create(workload, "deployment", scenario)
    path = f"{scenario.made_by}/deployment"
    try:
        mark = {"template": {"metadata": {"annotations": {"rollout": "2"}}}}
        workload.api.patch(path, {"spec": mark}, PatchKind.MERGE)

        def new_pod() -> Json | None:
            names = [each["metadata"]["name"] for each in workload.pods()]
            alone = len(names) == 1 and names[0] != old["metadata"]["name"]
            return workload.wait(names[0]) if alone else None

        new = wait_for("the new pod alone", new_pod, within_s=60)
        assert workload.seen(new)["main"].devices == allotted(new)["main"]
        check_books(workload, new)
    finally:
        workload.api.request("DELETE", path, query={"propagationPolicy": "Background"})


def check_books(workload: Workload, found: Json) -> None:
    """Check that the extender's books and `tangram top` say what the annotation does, for every device."""
    told = workload.books()
    assert {uuid for devices in allotted(found).values() for uuid in devices} == set(told)
    top = {each["uuid"]: each for each in json.loads(workload.product.tangram("-o", "json", "top"))["devices"]}
    for uuid, device in top.items():
        amounts = [(each.memory_mib, each.compute_milli) for each in told.get(uuid, ())]
        # An init container has ended when those come that run for long, so the larger of both is booked.
        combine = max if _ends_first(found) else sum
        assert device["booked_mib"] == combine([mib for mib, _ in amounts] or [0])
        assert device["booked_milli"] == combine([milli for _, milli in amounts] or [0])
        assert device["pods"] == len({each.pod_uid for each in told.get(uuid, ())})


def _ends_first(found: Json) -> bool:
    return any("restartPolicy" not in each for each in found["spec"].get("initContainers", ()))


def add_rows(scenario: Scenario, seen: dict[str, Seen]) -> None:
    """Add the scenario's lines to the document's table."""
    words = scenario.words
    for name, sight in seen.items():
        devices = ", ".join(f"`{uuid[:12]}…{uuid[-1]}`" for uuid in sight.devices)
        _TABLE.add(words, name, "`void`" if sight.visible == "void" else "these", devices or "none")
        words = ""
