"""The real agent on the C stub driver, with the real kube-scheduler: what NVML says decides who runs where."""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from node_agent.simulated_builders import node_description
from tests.controlplane.api import Json, wait_for
from tests.controlplane.conftest import PlaneFactory
from tests.controlplane.process import Process
from tests.controlplane.stack import EXTENDER, Stack, open_stack, pod
from tests.nvml.driver import Driver, compile_stub

NODE = "gpu-a"
DEVICES = 2
SEEN_S = 2.0
EVENTS = "/api/v1/namespaces/default/events"
STRANGER_PID = 4_000_000


@dataclass
class Real:
    stack: Stack
    driver: Driver

    def device(self, at: int) -> Json:
        [node] = self.stack.fleet()["nodes"]
        found: Json = node["devices"][at]
        return found


@pytest.fixture(scope="module")
def real(start_control_plane: PlaneFactory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    plane = start_control_plane(users=[EXTENDER])
    directory: Path = tmp_path_factory.mktemp("stub")
    driver = Driver(compile_stub(directory / "library"), directory / "scenario")
    driver.set(count=DEVICES)
    for index in range(DEVICES):
        driver.device(index, energy_mj=1000)
    with open_stack(plane, [node_description(NODE, "T4", DEVICES)]) as stack:
        stack.agents.silence(NODE)
        environment = driver.environ() | {
            "TANGRAM_AGENT_NODE": NODE,
            "TANGRAM_AGENT_URLS": stack.extender.url,
            "TANGRAM_AGENT_SWEEP_S": "0.5",
            "TANGRAM_AGENT_METRICS_PORT": "0",
            "TANGRAM_AGENT_REST_S": "1",
            "TANGRAM_AGENT_PROBATION_S": "2",
        }
        agent = Process("agent", [sys.executable, "-m", "node_agent"], directory / "agent.log", environment)
        agent.start()
        try:
            simulated = set(stack.agents.uuids(NODE))
            real = Real(stack, driver)
            wait_for("the stub's devices are known", lambda: real.device(0)["uuid"] not in simulated, within_s=60)
            yield real
        finally:
            agent.stop()


def test_xid_79_of_the_driver_reaches_the_scheduler_in_two_seconds_and_a_reset_brings_the_device_back(
    real: Real,
) -> None:
    stack, uuid = real.stack, real.device(0)["uuid"]
    here = {"gpu-uuid": uuid}
    for name in ("one", "two"):
        stack.create(pod(name, wishes=here, memory=1000, compute=10))
    stack.wait_all(2)
    uids = {each["metadata"]["uid"] for each in stack.pods()}
    began = time.monotonic()
    real.driver.announce(0, 79)
    wait_for("the device is out", lambda: real.device(0)["state"] == "out", within_s=SEEN_S)
    assert time.monotonic() - began < SEEN_S
    stack.create(pod("waits", wishes=here, memory=1000, compute=10))
    stack.wait_refusal("waits", "too few healthy GPUs")

    def named() -> bool:
        events = [each for each in stack.api.items(EVENTS) if "XID 79" in each["message"]]
        return uids <= {each["involvedObject"]["uid"] for each in events}

    wait_for("both pods are named in an event", named, within_s=10)
    real.driver.device(0, energy_mj=1)
    stack.wait_phase("waits", within_s=60)
    stack.clear()


def test_memory_of_a_strangers_process_is_not_offered_two_seconds_later(real: Real) -> None:
    stack, device = real.stack, real.device(1)
    before = int(device["foreign_mib"])
    real.driver.device(1, compute=f"{STRANGER_PID}:2048", used_mib=2048)
    wait_for("the extender knows", lambda: int(real.device(1)["foreign_mib"]) == before + 2048, within_s=SEEN_S)
    free = int(device["capacity_mib"]) - 2048
    stack.create(pod("too-large", wishes={"gpu-uuid": device["uuid"]}, memory=free + 1, compute=1))
    stack.wait_refusal("too-large", "too little free GPU memory")
    real.driver.device(1, compute=None, used_mib=None)
    stack.wait_phase("too-large", within_s=30)
    stack.clear()
