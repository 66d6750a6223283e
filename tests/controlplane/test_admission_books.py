"""From the door to the books: a pod that names no scheduler gets devices; no way past the door escapes the books."""

from collections.abc import Iterator

import pytest

from node_agent.simulated_builders import node_description
from tests.controlplane.api import ApiError, Json, PatchKind, wait_for
from tests.controlplane.build import Binaries
from tests.controlplane.conftest import PlaneFactory
from tests.controlplane.door import (
    WebhookServer,
    install,
    mutating,
    remove,
    render,
    validating,
    webhooks,
)
from tests.controlplane.stack import EXTENDER, PODS, Stack, open_stack, pod
from tests.support.reviews import a_door

PREFIX = "tangram.dev/"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"


@pytest.fixture(scope="module")
def objects(
    control_plane_binaries: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[Json], dict[str, str]]:
    values = {"policies": {"binder": EXTENDER.name}}
    return render(control_plane_binaries.path("helm"), tmp_path_factory.mktemp("chart"), values)


@pytest.fixture(scope="module")
def running(start_control_plane: PlaneFactory) -> Iterator[Stack]:
    plane = start_control_plane(users=[EXTENDER])
    plane.api.create("/apis/node.k8s.io/v1/runtimeclasses", {"metadata": {"name": "nvidia"}, "handler": "nvidia"})
    with open_stack(plane, [node_description("gpu-a", "L4", 2)]) as stack:
        yield stack


@pytest.fixture
def stack(running: Stack) -> Iterator[Stack]:
    yield running
    running.clear()


@pytest.fixture
def guarded(
    stack: Stack, objects: tuple[list[Json], dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    """The product with the door before it."""
    policies, conditions = objects
    with WebhookServer(webhooks(a_door()), tmp_path_factory.mktemp("webhook")) as server:
        configurations = [
            mutating(server, conditions["asksOurs"], conditions["isRouted"]),
            validating(server, conditions["asksOurs"]),
        ]
        install(stack.api, [*policies, *configurations])
        wait_for("the door stands", lambda: met(stack) == {"webhook", "policies"})
        yield stack
        remove(stack.api, [*policies, *configurations])
        wait_for("the door is gone", lambda: not met(stack))


def unadorned(name: str, **rows: str) -> Json:
    """Return a pod as an author writes it, without a word about schedulers."""
    limits = {PREFIX + row.replace("_", "-"): amount for row, amount in rows.items()}
    containers = [
        {"name": "main", "image": "tangram.test/pause:1", "resources": {"limits": limits}},
        {"name": "log", "image": "tangram.test/pause:1"},
    ]
    return {"metadata": {"name": name}, "spec": {"containers": containers}}


def met(stack: Stack) -> set[str]:
    """Return which parts of the door are in force: `webhook`, `policies`."""
    forged = unadorned("probe")
    forged["metadata"]["annotations"] = {f"{PREFIX}allocation": "{}"}
    parts = set()
    try:
        made = stack.api.request("POST", PODS, body=unadorned("probe", gpu="1"), query={"dryRun": "All"})
        if made["spec"]["schedulerName"] != "default-scheduler":
            parts.add("webhook")
    except ApiError:
        parts.add("policies")
    try:
        stack.api.request("POST", PODS, body=forged, query={"dryRun": "All"})
    except ApiError:
        parts.add("policies")
    return parts


def test_pod_that_names_no_scheduler_gets_its_devices(guarded: Stack) -> None:
    guarded.create(unadorned("plain", gpu_memory="8Gi"))
    found = guarded.wait_phase("plain")
    annotations = found["metadata"]["annotations"]
    books = guarded.check_books()
    ((uuid, (share,)),) = books.items()
    assert annotations[f"{PREFIX}devices-main"] == uuid
    assert share.memory_mib == 8192
    assert found["metadata"]["labels"] == {f"{PREFIX}managed": "true", f"{PREFIX}bound": "true"}
    main, log = found["spec"]["containers"]
    assert main["env"][0]["valueFrom"]["fieldRef"]["fieldPath"] == f"metadata.annotations['{PREFIX}devices-main']"
    assert log["env"] == [{"name": VISIBLE, "value": "void"}]


def test_fraction_alone_gets_its_devices(guarded: Stack) -> None:
    built = unadorned("part")
    built["metadata"]["annotations"] = {f"{PREFIX}gpu-fraction": "0.5", f"{PREFIX}gpu-container": "main"}
    guarded.create(built)
    guarded.wait_phase("part")
    ((_, (share,)),) = guarded.check_books().items()
    assert share.compute_milli == 500


def test_books_hold_what_a_pod_has_when_its_label_is_taken_off(stack: Stack) -> None:
    """Without policies, so that the label can be taken off at all."""
    built = pod("bare", memory=8192)
    built["metadata"]["labels"] = {f"{PREFIX}managed": "true"}
    stack.create(built)
    stack.wait_phase("bare")
    ((_, before),) = stack.check_books().items()
    bare = {"metadata": {"labels": {f"{PREFIX}managed": None, f"{PREFIX}bound": None}}}
    stack.api.patch(f"{PODS}/bare", bare, PatchKind.MERGE)
    stack.create(pod("next", memory=8192))
    stack.wait_phase("next")
    after = [share for shares in stack.check_books().values() for share in shares]
    assert len(after) == 2
    assert set(before) < set(after)


def test_books_hold_pods_that_came_past_the_webhook(stack: Stack) -> None:
    stack.create(*(pod(f"bare-{number}", devices=1) for number in range(2)))
    stack.wait_all(2)
    assert all(f"{PREFIX}managed" not in each["metadata"].get("labels", {}) for each in stack.pods())
    stack.create(pod("third", devices=1))
    stack.wait_refusal("third", "too few GPUs that nobody uses")
    stack.check_books()
