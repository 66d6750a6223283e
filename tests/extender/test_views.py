"""The fleet as people read it, while it changes."""

from __future__ import annotations

import pytest

from extender.settings import Settings
from extender.store import ClusterStore
from extender.views import fleet_view
from tests.support.builders import device, devices, node_facts, report

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def _fleet(nodes: int) -> ClusterStore:
    store = ClusterStore(Settings())
    for number in range(nodes):
        name = f"n{number:03}"
        store.set_node(node_facts(name))
        store.apply_report(report(name, device(f"GPU-{name}")), 1000.0)
    return store


async def test_a_large_fleet_is_read_in_turns() -> None:
    pauses = 0

    async def pause() -> None:
        nonlocal pauses
        pauses += 1

    found = await fleet_view(_fleet(250), 1001.0, pause)
    assert [node["name"] for node in found["nodes"]] == [f"n{number:03}" for number in range(250)]
    assert pauses == 2


async def test_what_happens_to_nodes_in_between_is_seen() -> None:
    store = _fleet(150)

    async def pause() -> None:
        store.remove_node("n120")
        store.set_node(node_facts("new"))
        store.apply_report(report("new", *devices(20)), 1001.0)
        store.apply_report(report("n130", *devices(40)), 1001.0)

    found = {node["name"]: node for node in (await fleet_view(store, 1001.0, pause))["nodes"]}
    assert "n120" not in found
    assert len(found["n130"]["devices"]) == 40
