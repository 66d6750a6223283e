"""Pods that come between another pod's scoring and its bind do not choose the same hole."""

from __future__ import annotations

import pytest

from extender.forthcoming import Forthcoming
from scoring import Outlook
from scoring.registry import build_policies
from tests.support.builders import A100_MIB, device, pod, report, share_request, store_with
from tests.support.harness import harness

pytestmark = pytest.mark.anyio
HALF = {"gpu_memory": A100_MIB // 2 + 1}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def cluster(nodes: int = 2):
    return harness({f"n{number}": [device(f"GPU-{number}")] for number in range(nodes)})


async def scored(made, asked, names):
    """Filter and prioritize a pod; return the best node."""
    made.kube.add(asked)
    passed = (await made.filter(asked, names))["NodeNames"]
    if len(passed) == 1:
        return passed[0]
    scores = await made.prioritize(asked, passed)
    return max(scores, key=lambda name: scores[name])


class TestTwoPodsBeforeTheFirstBind:
    async def test_the_second_goes_where_the_first_will_not_be(self):
        made = cluster()
        first, second = pod("first", **HALF), pod("second", **HALF)
        chosen = [await scored(made, each, ["n0", "n1"]) for each in (first, second)]
        assert sorted(chosen) == ["n0", "n1"]
        for each, node in zip((first, second), chosen, strict=True):
            assert await made.bind(each, node) == ""

    async def test_no_node_is_refused_for_what_has_not_been_bound(self):
        made = cluster(1)
        for name in ("first", "second"):
            assert await scored(made, pod(name, **HALF), ["n0"]) == "n0"

    async def test_where_filter_leaves_one_node_it_is_expected_too(self):
        made = cluster()
        assert await scored(made, pod("first", **HALF), ["n0"]) == "n0"
        assert await scored(made, pod("second", **HALF), ["n0", "n1"]) == "n1"

    async def test_a_small_pod_still_joins_the_device_that_has_room_beside_the_other(self):
        made = cluster()
        first = await scored(made, pod("first", gpu_memory=8192), ["n0", "n1"])
        assert await scored(made, pod("second", gpu_memory=8192), ["n0", "n1"]) == first

    async def test_once_it_is_bound_the_books_have_it_and_it_counts_once(self):
        made = cluster()
        first = pod("first", gpu_memory=A100_MIB // 2)
        node = await scored(made, first, ["n0", "n1"])
        assert await made.bind(first, node) == ""
        assert len(made.app.services.forthcoming) == 0
        assert await scored(made, pod("second", gpu_memory=A100_MIB // 2), ["n0", "n1"]) == node

    async def test_a_bind_that_never_comes_is_forgotten(self):
        made = cluster()
        lost = await scored(made, pod("lost", **HALF), ["n0", "n1"])
        made.clock.advance(2.1)
        assert await scored(made, pod("next", **HALF), ["n0", "n1"]) == lost

    async def test_the_books_and_reports_know_nothing_of_it(self):
        made = cluster()
        await scored(made, pod("first", **HALF), ["n0", "n1"])
        assert len(made.store.ledger) == 0
        assert not made.store.snapshot().booked_mib.any()


class TestForthcoming:
    def _expecting(self, *names: str) -> tuple[Forthcoming, object]:
        store, forthcoming = store_with(device("GPU-a"), device("GPU-b")), Forthcoming(lambda uid: uid == "booked")
        for name in names:
            forthcoming.expect(name, "n1", share_request(memory_mib=50_000), build_policies({})["binpack"], 10.0)
        return forthcoming, store.snapshot()

    def test_pods_on_one_node_are_placed_beside_each_other(self):
        forthcoming, fleet = self._expecting("a", "b", "c")
        shares = forthcoming.shares_of_others("d", fleet, Outlook.empty(), 11.0)
        assert {slot for _, slot in shares} == {0, 1}
        assert all(sharers == 1 for _, _, sharers in shares.values()), "the third does not fit and takes nothing"

    def test_a_pod_does_not_stand_in_its_own_way(self):
        forthcoming, fleet = self._expecting("a")
        assert forthcoming.shares_of_others("a", fleet, Outlook.empty(), 11.0) == {}

    def test_what_the_books_have_does_not_count_twice(self):
        forthcoming, fleet = self._expecting("booked")
        assert forthcoming.shares_of_others("a", fleet, Outlook.empty(), 11.0) == {}

    def test_nodes_that_are_gone_are_left_out(self):
        forthcoming, _ = self._expecting("a")
        other = store_with(device("GPU-a"), node="other").snapshot()
        assert forthcoming.shares_of_others("b", other, Outlook.empty(), 11.0) == {}

    def test_they_are_bounded_in_time_and_number(self):
        forthcoming, fleet = self._expecting(*(f"pod-{number}" for number in range(100)))
        assert len(forthcoming) == 64
        assert forthcoming.shares_of_others("x", fleet, Outlook.empty(), 12.0) == {}
        assert len(forthcoming) == 0


@pytest.mark.parametrize("devices_now", [9, 16, 64])
async def test_a_node_that_gets_more_devices_meanwhile_disturbs_no_score(devices_now: int):
    made = harness({"a": [device("GPU-a0")], "b": [device("GPU-b0")]})
    before, wide, after = pod("before", gpu_memory=8192), pod("wide", gpu=devices_now), pod("after", gpu_memory=8192)
    await made.filter(before, ["a", "b"])
    await made.report(report("a", *(device(f"GPU-a{number}") for number in range(devices_now))))
    assert (await made.filter(wide, ["a", "b"]))["NodeNames"] == ["a"]
    await made.filter(after, ["a", "b"])
    assert 10 in (await made.prioritize(after, ["a", "b"])).values()
    assert 10 in (await made.prioritize(before, ["a", "b"])).values(), "its own fleet has eight slots a node"
