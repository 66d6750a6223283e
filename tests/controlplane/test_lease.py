"""Two pairs on a real control plane: the one whose extender dies or freezes loses the lease, and the other acts soon.

A kubelet would stop a kube-scheduler whose liveness probe fails; here the test does what kubelet does.
"""

import itertools
import time
from collections.abc import Iterator

import pytest

from tests.controlplane.api import Json, wait_for
from tests.controlplane.conftest import PlaneFactory
from tests.controlplane.installed import NODES, Installed, Pair, install, may_name_hosts
from tests.controlplane.stack import advertised

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not may_name_hosts(), reason="a pair needs host names of its own: unshare -u, root"),
]

PODS = "/api/v1/namespaces/default/pods"
PERIOD_S, FAILURES = 2.0, 3
WITHIN_S = 20.0
SERIAL = itertools.count(1)


@pytest.fixture(scope="module")
def installed(start_control_plane: PlaneFactory) -> Iterator[Installed]:
    with install(start_control_plane(controller_manager=True), "webhooks.enabled=false") as release:
        yield release


@pytest.fixture(scope="module")
def pairs(installed: Installed) -> dict[str, Pair]:
    pairs = {name: installed.start_pair(name) for name in ("pair-a", "pair-b")}
    for node in NODES:
        installed.start_agent(node, *pairs.values())
    found = installed.plane.api
    wait_for("every node advertises", lambda: all(map(advertised, found.items("/api/v1/nodes"))), within_s=60)
    return pairs


def act_as_kubelet(pair: Pair) -> None:
    """Probe as the chart tells kubelet to, and stop the scheduler after as many failures in a row."""
    failures, deadline = 0, time.monotonic() + WITHIN_S
    while failures < FAILURES and time.monotonic() < deadline:
        began = time.monotonic()
        failures = 0 if pair.is_ready(within_s=PERIOD_S) else failures + 1
        time.sleep(max(0.0, began + PERIOD_S - time.monotonic()))
    pair.scheduler.stop()
    assert failures == FAILURES


def create(installed: Installed, name: str, *, memory: int = 4096, priority: str = "", uuid: str = "") -> str:
    """Create a pod as the webhook would leave it, on one device where its ``uuid`` is given; return its name."""
    path = "metadata.annotations['tangram.dev/devices-main']"
    shown = {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": path}}}
    limits = {"tangram.dev/gpu-memory": str(memory)}
    container = {"name": "main", "image": "tangram.test/pause:1", "resources": {"limits": limits}, "env": [shown]}
    spec: Json = {"schedulerName": "tangram-scheduler", "runtimeClassName": "nvidia", "containers": [container]}
    if priority:
        spec["priorityClassName"] = priority
    metadata: Json = {"name": name, "labels": {"tangram.dev/managed": "true"}}
    if uuid:
        metadata["annotations"] = {"tangram.dev/gpu-uuid": uuid}
    installed.plane.api.create(PODS, {"metadata": metadata, "spec": spec})
    return name


def wait_running(installed: Installed, name: str, within_s: float) -> None:
    def probe() -> Json | None:
        found = installed.plane.api.get(f"{PODS}/{name}")
        return found if found["status"].get("phase") == "Running" else None

    wait_for(f"pod {name} runs", probe, within_s=within_s)


def roles(installed: Installed, pairs: dict[str, Pair]) -> tuple[Pair, Pair]:
    """Return the pair that holds the lease, and the other, which is made to run."""
    holder = wait_for("a pair holds the lease", lambda: pairs.get(installed.lease_holder()))
    (other,) = (each for each in pairs.values() if each is not holder)
    if not other.extender.is_running():
        other.extender.start()
    if not other.scheduler.is_running():
        other.extender.wait_until(other.is_ready, within_s=60)
        other.scheduler.start()
    return holder, other


def test_pair_whose_extender_freezes_is_followed_within_twenty_seconds(
    installed: Installed, pairs: dict[str, Pair]
) -> None:
    holder, other = roles(installed, pairs)
    wait_running(installed, create(installed, f"before-{next(SERIAL)}"), 60)
    holder.extender.freeze()
    try:
        frozen_at = time.monotonic()
        during = create(installed, f"during-{next(SERIAL)}")
        act_as_kubelet(holder)
        wait_running(installed, during, WITHIN_S - (time.monotonic() - frozen_at))
        assert installed.lease_holder() == other.name
    finally:
        holder.extender.thaw()


def test_pair_that_is_killed_as_a_whole_is_followed_within_twenty_seconds(
    installed: Installed, pairs: dict[str, Pair]
) -> None:
    holder, other = roles(installed, pairs)
    wait_running(installed, create(installed, f"settled-{next(SERIAL)}"), 60)
    holder.scheduler.kill()
    holder.extender.kill()
    killed_at = time.monotonic()
    after = create(installed, f"after-{next(SERIAL)}")
    wait_running(installed, after, WITHIN_S - (time.monotonic() - killed_at))
    assert installed.lease_holder() == other.name
