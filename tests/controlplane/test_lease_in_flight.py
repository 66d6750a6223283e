"""A pair dies while its Binding is on the way, and pairs are rolled under load: no device is given twice, no pod lost.

Each extender reaches the API server through a proxy of its own. That of the first pair holds its Binding back, for as
long as the test likes: a Binding whose sender is long dead still arrives.
"""

import time
from collections.abc import Iterator

import pytest

from node_agent.simulated import device_uuid
from node_agent.simulated_builders import node_description
from tests.controlplane.api import Json, wait_for
from tests.controlplane.books import annotated, booked, hardware, overfull
from tests.controlplane.conftest import PlaneFactory
from tests.controlplane.faults import Rule, hold, status
from tests.controlplane.installed import NODES, Installed, Pair, install, may_name_hosts
from tests.controlplane.proxy import FaultProxy
from tests.controlplane.stack import advertised
from tests.controlplane.test_lease import PODS, WITHIN_S, create, wait_running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not may_name_hosts(), reason="a pair needs host names of its own: unshare -u, root"),
]

DEVICES = hardware([node_description(node, "A100-40GB", 2) for node in NODES])
MOST = 30_000  # MiB: two of these do not fit one device
PODS_UNDER_LOAD = 40
DEADLINE_S = 4.0  # bind_deadline_s


@pytest.fixture(scope="module")
def installed(start_control_plane: PlaneFactory) -> Iterator[Installed]:
    plane = start_control_plane(controller_manager=True)
    priority = {"metadata": {"name": "first"}, "value": 1000, "preemptionPolicy": "Never"}
    plane.api.create("/apis/scheduling.k8s.io/v1/priorityclasses", priority)
    with install(plane, "webhooks.enabled=false") as release:
        yield release


@pytest.fixture(scope="module")
def proxies(installed: Installed) -> Iterator[tuple[FaultProxy, FaultProxy]]:
    with FaultProxy(installed.account) as first, FaultProxy(installed.account) as second:
        yield first, second


@pytest.fixture(scope="module")
def pairs(installed: Installed, proxies: tuple[FaultProxy, FaultProxy]) -> tuple[Pair, Pair]:
    """Return the two pairs, each behind its proxy."""
    first, second = (way.endpoint for way in proxies)
    pairs = installed.start_pair("pair-a", first), installed.start_pair("pair-b", second)
    for node in NODES:
        installed.start_agent(node, *pairs)
    found = installed.plane.api
    wait_for("every node advertises", lambda: all(map(advertised, found.items("/api/v1/nodes"))), within_s=120)
    return pairs


@pytest.fixture(autouse=True)
def cluster(installed: Installed, proxies: tuple[FaultProxy, FaultProxy], pairs: tuple[Pair, Pair]) -> Iterator[None]:
    """Begin with the first pair as holder and a standby; end without pods."""
    first, second = pairs
    if installed.lease_holder() != first.name:
        start(first)
        second.scheduler.stop()
        wait_for("the first pair holds the lease", lambda: installed.lease_holder() == first.name, within_s=40)
    start(second)
    yield
    for proxy in proxies:
        proxy.clear()
    for each in installed.plane.api.items(PODS):
        installed.plane.api.delete(f"{PODS}/{each['metadata']['name']}", grace_s=0)
    wait_for("no pods are left", lambda: not installed.plane.api.items(PODS))


def start(pair: Pair) -> None:
    """Start what does not run of a pair, the extender first."""
    if not pair.extender.is_running():
        pair.extender.start()
    pair.extender.wait_until(pair.is_ready, within_s=60)
    if not pair.scheduler.is_running():
        pair.scheduler.start()


def stop_as_kubelet_does(pair: Pair) -> None:
    """Stop a pair as kubelet ends a pod: the container, then its sidecar."""
    pair.scheduler.stop(within_s=15)
    pair.extender.stop(within_s=15)


def pod(installed: Installed, name: str) -> Json:
    return installed.plane.api.get(f"{PODS}/{name}")


def is_refused(installed: Installed, name: str) -> bool:
    conditions = pod(installed, name)["status"].get("conditions", [])
    return any(each.get("reason") == "Unschedulable" for each in conditions)


def hold_binding_and_kill(installed: Installed, proxy: FaultProxy, holder: Pair, uuid: str) -> Rule:
    """Let the holder's Binding of the pod ``held`` to a device be on its way, and the whole pair die."""
    rule = proxy.add(hold(), "POST", "/pods/held/binding$")
    create(installed, "held", memory=MOST, uuid=uuid)
    rule.wait_hit(within_s=60)
    holder.scheduler.kill()
    holder.extender.kill()
    return rule


def check_nothing_is_given_twice(installed: Installed) -> None:
    assert not overfull(annotated(installed.plane.api.items(PODS)), DEVICES)


def wait_books_agree(installed: Installed, pair: Pair) -> None:
    """Wait until the pair's books are what the annotations say; that a device is over is never waited out."""
    token = installed.viewer_token()

    def probe() -> bool:
        check_nothing_is_given_twice(installed)
        return booked(pair.ask("/v1/fleet", token=token).json()) == annotated(installed.plane.api.items(PODS))

    wait_for("books and annotations agree", probe, within_s=20)


def test_binding_that_arrives_before_the_next_pair_acts_is_in_its_books(
    installed: Installed, proxies: tuple[FaultProxy, FaultProxy], pairs: tuple[Pair, Pair]
) -> None:
    uuid = device_uuid(NODES[0], 0)
    rule = hold_binding_and_kill(installed, proxies[0], pairs[0], uuid)
    create(installed, "rival", memory=MOST, priority="first", uuid=uuid)
    assert installed.lease_holder() == pairs[0].name  # The dead pair's lease has not run out yet.
    rule.release()
    wait_running(installed, "held", WITHIN_S)
    wait_for("the other pair holds the lease", lambda: installed.lease_holder() == pairs[1].name, within_s=WITHIN_S)
    wait_for("the rival is refused", lambda: is_refused(installed, "rival"), within_s=WITHIN_S)
    wait_books_agree(installed, pairs[1])


def test_binding_that_arrives_after_the_next_pair_gave_the_device_is_refused(
    installed: Installed, proxies: tuple[FaultProxy, FaultProxy], pairs: tuple[Pair, Pair]
) -> None:
    first, second = proxies
    uuid = device_uuid(NODES[1], 1)
    second.add(status(409), "POST", "/pods/held/binding$", times=None)  # So the next pair gives it to the rival.
    rule = hold_binding_and_kill(installed, first, pairs[0], uuid)
    killed_at = time.monotonic()
    create(installed, "rival", memory=MOST, priority="first", uuid=uuid)
    wait_running(installed, "rival", 60)
    assert time.monotonic() - killed_at > DEADLINE_S, "the next pair did not wait for the bind deadline"
    wait_for("the held pod is refused", lambda: is_refused(installed, "held"), within_s=WITHIN_S)
    arrived_before = len(first.seen("POST", "/pods/held/binding$"))
    rule.release()
    late = first.wait_seen("POST", "/pods/held/binding$", count=arrived_before + 1)[-1]
    assert late.status == 409
    assert not pod(installed, "held")["spec"].get("nodeName")
    wait_books_agree(installed, pairs[1])


def test_pairs_that_are_rolled_under_load_lose_no_pod_and_place_none_twice(
    installed: Installed, proxies: tuple[FaultProxy, FaultProxy], pairs: tuple[Pair, Pair]
) -> None:
    names = [f"load-{number}" for number in range(PODS_UNDER_LOAD)]
    seen: dict[str, str] = {}
    waves = [names[first::4] for first in range(4)]
    for wave, pair in zip(waves, (*pairs, *pairs), strict=True):
        for name in wave:
            create(installed, name, memory=1024)
        stop_as_kubelet_does(pair)
        start(pair)
        note_nodes(installed, seen)

    def all_run() -> bool:
        note_nodes(installed, seen)
        check_nothing_is_given_twice(installed)
        phases = [each["status"].get("phase") for each in installed.plane.api.items(PODS)]
        return phases == ["Running"] * PODS_UNDER_LOAD

    wait_for("every pod runs", all_run, within_s=120)
    bindings = [each for proxy in proxies for each in proxy.seen("POST", "/load-[0-9]+/binding$")]
    written = [each.path for each in bindings if each.status == 201]
    assert len(written) == len(set(written)) <= PODS_UNDER_LOAD
    assert sum(map(len, annotated(installed.plane.api.items(PODS)).values())) == PODS_UNDER_LOAD
    for pair in pairs:
        wait_books_agree(installed, pair)


def note_nodes(installed: Installed, seen: dict[str, str]) -> None:
    """Remember where each pod is, and see that none has moved."""
    for each in installed.plane.api.items(PODS):
        uid, node = each["metadata"]["uid"], each["spec"].get("nodeName")
        if node:
            assert seen.setdefault(uid, node) == node
