"""Fifty binds at the same moment for a device with room for three: three are bound, every time, whatever relists.

Two hundred times against the simulated API server, where the extender is killed and lists anew in between; some times
against the real one, where its watches expire.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from extender.simulation.apiserver import SimulatedApiServer
from extender.simulation.apiserving import ServedApiServer
from node_agent.simulated_builders import node_description
from tests.controlplane.access import Endpoint
from tests.controlplane.agents import Agents
from tests.controlplane.api import Api, Json, wait_for
from tests.controlplane.books import Hardware, annotated, booked, hardware, overfull
from tests.controlplane.conftest import PlaneFactory
from tests.controlplane.faults import gone
from tests.controlplane.kubelet import HollowNode, node_manifest
from tests.controlplane.loopback import free_ports
from tests.controlplane.product import ExtenderProcess
from tests.controlplane.stack import EXTENDER, NAMESPACE, PODS, extender_command, open_stack, pod

CALLS, ROOM = 50, 3
NODE = "gpu-a"
FLEET = [node_description(NODE, "T4", 1)]
EAGER = {"TANGRAM_HEARTBEAT_S": "1", "TANGRAM_ADVERTISE_INTERVAL_S": "0.2"}


@dataclass(frozen=True, slots=True)
class Ground:
    """An API server, an extender on it, one device, and how to make the extender list anew."""

    api: Api
    extender: ExtenderProcess
    devices: dict[str, Hardware]
    relist: Callable[[], None]

    def fleet(self) -> Json:
        found: Json = httpx2.get(f"{self.extender.url}/v1/fleet", timeout=10, trust_env=False).json()
        return found

    def has_device(self) -> bool:
        return any(each["devices"] for each in self.fleet()["nodes"])


@pytest.fixture
def real(start_control_plane: PlaneFactory) -> Iterator[Ground]:
    plane = start_control_plane(users=[EXTENDER])
    with open_stack(plane, FLEET, with_scheduler=False) as stack:

        def let_watches_expire() -> None:
            stack.proxy.add(gone(), "GET", watch=True, times=2)
            stack.proxy.cut_watches()

        yield Ground(stack.api, stack.extender, stack.hardware, let_watches_expire)


@pytest.fixture
def simulated(tmp_path: Path) -> Iterator[Ground]:
    (port,) = free_ports(1)
    with ServedApiServer(SimulatedApiServer()) as served, Api(Endpoint(served.url, "any", None)) as api:
        api.create("/api/v1/nodes", node_manifest(HollowNode(NODE)))
        environment = EAGER | {"TANGRAM_API_SERVER": served.url, "TANGRAM_PORT": str(port)}
        with (
            ExtenderProcess(extender_command(), environment, port, tmp_path / "extender.log") as extender,
            Agents(FLEET, extender.url),
        ):

            def kill_and_start() -> None:
                extender.restart()
                extender.wait_ready()
                wait_for("the agent reported", ground.has_device, within_s=60)

            ground = Ground(api, extender, hardware(FLEET), kill_and_start)
            wait_for("the agent reported", ground.has_device, within_s=60)
            yield ground


def test_three_of_fifty_concurrent_binds_succeed_two_hundred_times(simulated: Ground) -> None:
    fill_and_empty(simulated, repetitions=200, relist_every=60)


def test_three_of_fifty_concurrent_binds_succeed_on_the_real_api_server(real: Ground) -> None:
    fill_and_empty(real, repetitions=20, relist_every=8)


def fill_and_empty(ground: Ground, repetitions: int, relist_every: int) -> None:
    (device,) = ground.devices.values()
    names = [f"pod-{number}" for number in range(CALLS)]
    manifests = {name: pod(name, memory=device.capacity_mib // ROOM) for name in names}
    pods = {name: ground.api.create(PODS, manifest) for name, manifest in manifests.items()}
    for repetition in range(1, repetitions + 1):
        if repetition % relist_every == 0:
            ground.relist()
        answers = asyncio.run(bind_all(ground.extender.url, pods.values()))
        bound = sorted(name for name, error in answers.items() if not error)
        assert len(bound) == ROOM, f"repetition {repetition}: {answers}"
        assert {error for error in answers.values() if error} == {"too little free GPU memory on each GPU"}
        check_books(ground, {pods[name]["metadata"]["uid"] for name in bound})
        for name in bound:
            ground.api.delete(f"{PODS}/{name}", grace_s=0)
            pods[name] = ground.api.create(PODS, manifests[name])
        wait_for("the room is free again", lambda: not booked(ground.fleet()), within_s=40)


async def bind_all(url: str, pods: Iterable[Json]) -> dict[str, str]:
    """Ask for every pod at once; return the errors by name, empty where there was none."""
    limits = httpx2.Limits(max_connections=CALLS)
    async with httpx2.AsyncClient(base_url=url, limits=limits, timeout=20, trust_env=False) as client:

        async def bind(found: Json) -> tuple[str, str]:
            about = found["metadata"]
            body = {"PodName": about["name"], "PodNamespace": NAMESPACE, "PodUID": about["uid"], "Node": NODE}
            answer = await client.post("/v1/bind", content=json.dumps(body))
            assert answer.status_code == 200
            return about["name"], answer.json()["Error"]

        return dict(await asyncio.gather(*(bind(each) for each in pods)))


def check_books(ground: Ground, holders: set[str]) -> None:
    """Check that exactly these pods hold something, in the annotations and in the extender's books."""
    written = annotated(ground.api.items(PODS))
    assert {share.pod_uid for shares in written.values() for share in shares} == holders
    assert not overfull(written, ground.devices)
    assert booked(ground.fleet()) == written
