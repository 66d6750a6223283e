"""Amounts that no hardware has: the books take them, and whatever is on the same node goes on."""

from __future__ import annotations

import pytest

from extender.allocation import encode_allocation
from extender.holdings import Reservation
from extender.objects import Container, Metadata, Node, NodeStatus, Pod, PodSpec, Resources
from extender.observing import observe_node, observe_pod
from scoring.fleet import MOST_BOOKED, NodeState
from scoring.outlook import Outlook
from scoring.request import Allocation, Share, SharingMode
from scoring.workload import MixHistogram
from tests.support.builders import A100_MIB, PREFIX, device, placing, share_request, store_with

_EXA = "9E"


def _bound(requests: dict[str, str], *, containers: int = 1, allocation: str = "") -> Pod:
    held = tuple(Container(name=f"c{number}", resources=Resources(requests=requests)) for number in range(containers))
    annotations = {PREFIX + "allocation": allocation} if allocation else None
    metadata = Metadata(name="huge", namespace="default", uid="uid-huge", annotations=annotations)
    return Pod(metadata=metadata, spec=PodSpec(node_name="n1", containers=held))


@pytest.mark.parametrize("containers", [1, 40])
def test_cpu_and_memory_beyond_any_node_are_booked_and_freed(containers: int) -> None:
    store = store_with(device())
    store.set_pod(observe_pod(_bound({"cpu": _EXA, "memory": "7E"}, containers=containers), PREFIX))
    assert isinstance(store.assume(placing(share_request(1024)), 1001.0), Reservation)
    store.release("uid-huge")
    fleet = store.snapshot()
    assert (fleet.cpu_booked_milli[0], fleet.host_booked_mib[0]) == (0, 0)


def test_a_node_may_claim_any_cpu() -> None:
    store = store_with(device())
    amounts = {"cpu": _EXA, "memory": "7E"}
    store.set_node(observe_node(Node(metadata=Metadata(name="n1"), status=NodeStatus(amounts, amounts)), PREFIX))
    assert isinstance(store.assume(placing(share_request(1024)), 1001.0), Reservation)


def test_planning_survives_a_pod_that_asks_for_any_cpu() -> None:
    store = store_with(device())
    seen = observe_pod(_bound({"cpu": _EXA, PREFIX + "gpu-memory": "1024"}), PREFIX)
    assert seen.request is not None
    histogram = MixHistogram()
    histogram.note(seen.request)
    histogram.note(share_request(1024))
    Outlook.of(histogram.mix(), store.snapshot().kinds).before(store.snapshot())


def _allocation(memory_mib: int, shares: int) -> str:
    share = Share("GPU-0", memory_mib, 1000, SharingMode.TIME_SLICING)
    return encode_allocation(Allocation(tuple((f"c{number}", (share,)) for number in range(shares)), "binpack"))


def test_an_allocation_of_more_than_a_column_holds_fills_the_device_and_is_freed() -> None:
    store = store_with(device())
    store.set_pod(observe_pod(_bound({PREFIX + "gpu-memory": "1"}, allocation=_allocation(2**24, 300)), PREFIX))
    assert store.snapshot().booked_mib[0, 0] == MOST_BOOKED
    assert ("n1", "GPU-0") in store.overbooked()
    store.release("uid-huge")
    assert store.snapshot().booked_mib[0, 0] == 0


def test_an_allocation_of_more_than_any_device_has_conflicts_its_node() -> None:
    store = store_with(device())
    store.set_pod(observe_pod(_bound({PREFIX + "gpu-memory": "1"}, allocation=_allocation(2**40, 1)), PREFIX))
    assert store.snapshot().node_state[0] == NodeState.CONFLICTED
    store.release("uid-huge")
    assert isinstance(store.assume(placing(share_request(A100_MIB)), 1001.0), Reservation)


def test_what_if_shares_never_overflow() -> None:
    fleet = store_with(device()).snapshot().with_shares({(0, 0): (-(2**40), 2**40, 1)})
    assert (fleet.booked_mib[0, 0], fleet.booked_milli[0, 0]) == (-MOST_BOOKED, MOST_BOOKED)
