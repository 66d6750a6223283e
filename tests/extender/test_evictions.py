"""Between an eviction and the day our books show it, nobody else dies for the same pod."""

from __future__ import annotations

import msgspec
import pytest

from extender.evictions import LAG_S, TERMINATING_S
from extender.observing import observe_pod
from extender.wire import Victim, Victims
from tests.support.builders import PREFIX, device, pod
from tests.support.harness import Harness, as_json, harness

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def occupied() -> Harness:
    """Return two nodes of one full device each, each held by a pod of low priority."""
    bench = harness({"a": [device("GPU-a")], "b": [device("GPU-b")]})
    for node in "ab":
        victim = pod(f"low-{node}", gpu_memory=60_000, priority=1)
        bench.kube.add(victim)
        assert await bench.bind(victim, node) == ""
    return bench


async def ask(bench: Harness) -> tuple[int, set[str]]:
    """Ask preempt for the important pod, and return the status and the nodes kept."""
    victims = {node: {"Pods": [{"UID": f"uid-low-{node}"}], "NumPDBViolations": 0} for node in "ab"}
    asked = as_json(pod("vip", gpu_memory=70_000, priority=9))
    body = {"Pod": asked, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
    answer = await bench.post("/v1/preempt", body)
    return answer.status_code, set(answer.json()["NodeNameToMetaVictims"]) if answer.status_code == 200 else set()


async def test_nobody_else_is_evicted_while_the_watch_lags_behind() -> None:
    bench = await occupied()
    assert await ask(bench) == (200, {"a", "b"})
    bench.clock.advance(0.012)
    assert await ask(bench) == (503, set())


async def test_the_pod_is_woken_to_ask_again() -> None:
    bench = await occupied()
    await ask(bench)
    await ask(bench)
    assert await bench.app.services.waker.round()


async def test_one_node_that_is_free_of_its_victims_ends_the_wait() -> None:
    bench = await occupied()
    await ask(bench)
    bench.store.release("uid-low-a")
    status, kept = await ask(bench)
    assert (status, "b" in kept) == (200, True)


async def test_an_eviction_that_never_happened_is_waited_for_a_short_time_only() -> None:
    bench = await occupied()
    await ask(bench)
    bench.clock.advance(LAG_S)
    assert await ask(bench) == (200, {"a", "b"})


async def test_victims_on_their_way_out_are_waited_for_longer_but_not_for_ever() -> None:
    bench = await occupied()
    await ask(bench)
    (bound,) = [each for each in bench.kube.pods.values() if each.metadata.name == "low-a"]
    ending = msgspec.structs.replace(bound.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    bench.store.set_pod(observe_pod(msgspec.structs.replace(bound, metadata=ending), PREFIX))
    bench.clock.advance(LAG_S)
    assert await ask(bench) == (503, set())
    bench.clock.advance(TERMINATING_S - LAG_S)
    assert (await ask(bench))[0] == 200


async def test_the_memory_is_bounded() -> None:
    bench = await occupied()
    evictions = bench.app.services.evictions
    for number in range(3000):
        evictions.allow(f"uid-{number}", {"a": Victims((Victim("uid-low-a"),))}, 0.0)
    assert len(evictions._allowed) == 1024
