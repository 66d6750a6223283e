"""The life of a pod on a hollow node."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from extender.simulation.kubelet import Kubelet
from extender.simulation.nodefit import SeenPod
from tests.support.clock import ManualClock

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class FakeCluster:
    """Writes down what is done to pods; ``gone`` ones are not there any more."""

    def __init__(self):
        self.story = []
        self.gone = set()

    def patch_pod_status(self, namespace, name, status):
        self.story.append(f"{name} {status['phase']}")
        return name not in self.gone

    def delete_pod(self, namespace, name, grace_s):
        self.story.append(f"{name} deleted" if grace_s == 0 else f"{name} asked to go")
        return True


def bound_pod(name, namespace="batch", node="n", deleted=None):
    content = {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "deletionTimestamp": deleted},
        "spec": {"nodeName": node},
        "status": {"phase": "Pending"},
    }
    return msgspec.json.decode(msgspec.json.encode(content), type=SeenPod)


class Bench:
    def __init__(self, runs_s=30.0):
        self.cluster, self.clock = FakeCluster(), ManualClock(0.0)
        self.kubelet = Kubelet(self.cluster, ThreadPoolExecutor(1), self.clock, lambda *_: runs_s)

    async def let_live(self, *pods):
        for pod in pods:
            self.kubelet.on_pod(pod)
        while self.kubelet._lives:
            await asyncio.gather(*self.kubelet._lives.values(), return_exceptions=True)
            await asyncio.sleep(0)
        return self.cluster.story


async def test_a_batch_pod_runs_succeeds_and_is_collected():
    bench = Bench(runs_s=30.0)
    assert await bench.let_live(bound_pod("p")) == ["p Running", "p Succeeded", "p deleted"]
    assert 30.0 in bench.clock.slept


async def test_a_service_is_deleted_while_it_runs():
    bench = Bench()
    assert await bench.let_live(bound_pod("p", "inference")) == ["p Running", "p asked to go", "p deleted"]


async def test_a_pod_without_a_node_has_no_life():
    assert await Bench().let_live(bound_pod("p", node="")) == []


async def test_a_pod_that_is_gone_before_it_starts_is_left_alone():
    bench = Bench()
    bench.cluster.gone.add("p")
    assert await bench.let_live(bound_pod("p")) == ["p Running"]


async def test_a_pod_that_somebody_deletes_is_let_go():
    bench = Bench()
    assert await bench.let_live(bound_pod("p", deleted="2026-01-01T00:00:00Z")) == ["p deleted"]


async def test_an_update_does_not_start_a_second_life():
    bench = Bench()
    assert await bench.let_live(bound_pod("p"), bound_pod("p")) == ["p Running", "p Succeeded", "p deleted"]


async def test_stopping_ends_every_life():
    bench = Bench()
    bench.kubelet.on_pod(bound_pod("p"))
    await bench.kubelet.stop()
    assert bench.kubelet._lives == {}
