"""Answers that let no node through are remembered, and told again only while they are true."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from extender.native_names import open_names
from extender.refusals import Refusals
from node_agent.report import Health
from tests.support.builders import device, node_facts, pod, report
from tests.support.harness import Harness, harness

NODES = [f"n{number:03d}" for number in range(70)]
"""More than are looked up one by one."""

pytestmark = pytest.mark.skipif(open_names() is None, reason="no helper was built: there is no C compiler here")

Step = Callable[[Harness], Awaitable[None]]


def told(monkeypatch: pytest.MonkeyPatch, *steps: Sequence[str] | Step) -> tuple[list[dict[str, Any]], int]:
    """Filter a pod that fits nowhere for each list of names; return the answers, and how many were remembered."""
    remembered = 0
    find = Refusals.find

    def counted(self: Refusals, *of: Any) -> Any:
        nonlocal remembered
        found = find(self, *of)
        remembered += found is not None
        return found

    monkeypatch.setattr(Refusals, "find", counted)

    async def scenario() -> list[dict[str, Any]]:
        at = harness({name: [device(f"GPU-{name}")] for name in NODES})
        found = []
        for step in steps:
            if callable(step):
                await step(at)
            else:
                found.append(await at.filter(pod(gpu_memory=500_000), step))
        return found

    return asyncio.run(scenario()), remembered


def sick(name: str) -> Step:
    async def step(at: Harness) -> None:
        await at.report(report(name, device(f"GPU-{name}", health=Health.OUT)))

    return step


def busy(name: str) -> Step:
    async def step(at: Harness) -> None:
        await at.report(report(name, device(f"GPU-{name}", utilisation=0.9)))

    return step


async def grown(at: Harness) -> None:
    at.app.node_handler()._on_node(node_facts("new"))
    at.store.apply_report(report("new", device("GPU-new")), at.clock.now())


def test_same_question_in_another_order_is_answered_from_memory(monkeypatch: pytest.MonkeyPatch):
    (first, again), remembered = told(monkeypatch, NODES, NODES[30:] + NODES[:30])
    assert remembered == 1
    assert first == again
    assert set(first["FailedAndUnresolvableNodes"]) == set(NODES)


def test_load_alone_leaves_the_answer_as_it_is(monkeypatch: pytest.MonkeyPatch):
    (first, again), remembered = told(monkeypatch, NODES, busy("n003"), NODES)
    assert (first == again, remembered) == (True, 1)


def test_other_nodes_get_an_answer_of_their_own(monkeypatch: pytest.MonkeyPatch):
    (_, some, _), remembered = told(monkeypatch, NODES, NODES[1:], NODES)
    assert remembered == 1
    assert set(some["FailedAndUnresolvableNodes"]) == set(NODES[1:])


@pytest.mark.parametrize("change", [pytest.param(sick("n003"), id="sick"), pytest.param(grown, id="a node more")])
def test_what_has_changed_is_told_anew(monkeypatch: pytest.MonkeyPatch, change: Step):
    (first, again), remembered = told(monkeypatch, NODES, change, [*NODES, "new"])
    assert remembered == 0
    assert set(again["FailedNodes"] | again["FailedAndUnresolvableNodes"]) == {*NODES, "new"}
    assert first != again


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch):
    kept = []
    keep = Refusals.keep

    def counted(self: Refusals, *of: Any) -> None:
        keep(self, *of)
        kept.append(len(self))

    monkeypatch.setattr(Refusals, "keep", counted)
    told(monkeypatch, *(NODES[: 70 - number] for number in range(5)), *(NODES[number:] for number in range(1, 20)))
    assert max(kept) == 16
