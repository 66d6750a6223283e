"""The main job on one version of Kubernetes: a pod is placed, one is refused, one preempts, and the policies hold.

`make test-matrix` runs this file for every supported version; the variable KUBERNETES_VERSION names the one.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from extender.kubejson import encode_binding
from node_agent.simulated_builders import node_description
from tests.controlplane import door
from tests.controlplane.api import ApiError, PatchKind, wait_for
from tests.controlplane.build import Binaries, binaries, ensure
from tests.controlplane.conftest import PlaneFactory
from tests.controlplane.modules import KUBERNETES_VERSION
from tests.controlplane.stack import EXTENDER, PODS, PREFIX, Stack, open_stack, pod

NEEDED = ("etcd", "kube-apiserver", "kube-scheduler")
NODES = ("gpu-a", "gpu-b")
VERSION = os.environ.get("KUBERNETES_VERSION") or KUBERNETES_VERSION


@pytest.fixture(scope="module")
def control_plane_binaries(pytestconfig: pytest.Config) -> Binaries:
    """Build the programs of the version under test, or take them from the cache."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():
        return binaries(NEEDED, kubernetes_version=VERSION)


@pytest.fixture(scope="module")
def running(start_control_plane: PlaneFactory) -> Iterator[Stack]:
    plane = start_control_plane(users=[EXTENDER])
    for name, value in (("low", 10), ("high", 1000)):
        plane.api.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": value})
    with open_stack(plane, [node_description(name, "T4", 2) for name in NODES]) as stack:
        yield stack


@pytest.fixture
def stack(running: Stack) -> Iterator[Stack]:
    yield running
    running.clear()


def test_control_plane_is_of_the_version_that_was_asked_for(running: Stack) -> None:
    assert running.api.get("/version")["gitVersion"] == f"v{VERSION}"


def test_pods_share_a_device_and_the_books_know(stack: Stack) -> None:
    wishes = {"gpu-uuid": stack.agents.uuids("gpu-a")[0]}
    stack.create(*(pod(f"share-{number}", memory=4096, compute=20, wishes=wishes) for number in range(3)))
    stack.wait_all(3)
    (shares,) = stack.check_books().values()
    assert sorted(each.memory_mib for each in shares) == [4096] * 3


def test_pod_that_fits_no_device_is_refused_in_our_words(stack: Stack) -> None:
    stack.create(pod("big", memory=20_000))
    assert "2 request is larger than any GPU of the node" in stack.wait_refusal("big", "larger than any GPU")
    assert not stack.check_books()


def test_pod_of_high_priority_takes_the_place_of_one_of_low(stack: Stack) -> None:
    classes = {"keeps-0": "high", "keeps-1": "high", "keeps-2": "high", "low": "low"}
    stack.create(*(pod(name, memory=14_000, compute=10, priority_class=each) for name, each in classes.items()))
    stack.wait_all(4)
    stack.create(pod("urgent", memory=12_000, compute=10, priority_class="high"))
    stack.wait_phase("urgent")
    left = {each["metadata"]["name"] for each in stack.pods() if "deletionTimestamp" not in each["metadata"]}
    assert left == {"keeps-0", "keeps-1", "keeps-2", "urgent"}
    stack.check_books()


def test_binding_of_a_pod_that_changed_since_is_refused(stack: Stack) -> None:
    """What keeps a Binding that was long on its way from giving a device away: its resource version is checked."""
    stack.create(pod("moved", memory=20_000))
    stack.wait_refusal("moved", "larger than any GPU")
    before = stack.pod("moved")["metadata"]
    stack.api.patch(f"{PODS}/moved", {"metadata": {"labels": {"touched": "yes"}}}, PatchKind.MERGE)
    late = encode_binding("default", "moved", before["uid"], "gpu-a", {}, before["resourceVersion"])
    with pytest.raises(ApiError) as caught:
        stack.api.create(f"{PODS}/moved/binding", json.loads(late))
    assert caught.value.status == 409
    assert not stack.pod("moved")["spec"].get("nodeName")


def test_policies_of_the_chart_hold(stack: Stack, tmp_path: Path) -> None:
    objects, _ = door.render(ensure("helm"), tmp_path / "chart")
    door.install(stack.api, objects)
    try:
        wait_for("a forged pod is refused", lambda: is_refused(stack))
    finally:
        door.remove(stack.api, objects)


def is_refused(stack: Stack) -> bool:
    """Create a pod that forges its allocation; a policy takes a moment to come into force."""
    try:
        stack.create(pod("forged", annotations={f"{PREFIX}/allocation": "{}"}, memory=4096))
    except ApiError as refusal:
        return "ValidatingAdmissionPolicy" in refusal.message
    stack.delete("forged")
    return False
