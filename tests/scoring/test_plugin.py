"""Pods that ask NVIDIA's device plugin: nodes judged and scored by replicas, conditions, health and load."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scoring.conditions import parse_conditions
from scoring.draft import FleetDraft
from scoring.fleet import DeviceState, Fleet, ModeCode, NodeState
from scoring.outlook import Outlook
from scoring.pipeline import PlacedPod, allocation_on, evaluate, verdict
from scoring.preferences import parse_preferences
from scoring.request import PluginAsk, PodRequest
from scoring.status import Code, Reason
from tests.support.fleets import (
    A100,
    BINPACK,
    GIB,
    L4,
    MIG_10GB,
    POLICIES,
    T4,
    Gpu,
    Host,
    add_node,
    asks,
    gpu,
    node,
    share,
    winner,
)

GPU = "nvidia.com/gpu"
SHARED = "nvidia.com/gpu.shared"
MIG = "nvidia.com/mig-1g.10gb"


def theirs(kind=T4, resource: int = 0, replicas: int = 1, taken: int = 0, **columns: float) -> Gpu:
    """Return a device of the plugin; resources are numbered GPU, SHARED, MIG."""
    held = {"mode": ModeCode.PLUGIN, "resource": resource, "replicas": replicas, "replicas_taken": taken}
    return gpu(kind, **{**held, **columns})


def fleet_of(**nodes: Host | list[Gpu]) -> Fleet:
    draft = FleetDraft()
    for resource in (GPU, SHARED, MIG):
        draft.resource_index(resource)
    for name, host in nodes.items():
        add_node(draft, name, host)
    return draft.freeze()


def wants(count: int = 1, resource: str = GPU, **annotations: str) -> PodRequest:
    named = {"tangram.dev/" + name.replace("_", "-"): text for name, text in annotations.items()}
    return PodRequest(plugin=(PluginAsk(resource, count),), conditions=parse_conditions(named))


def verdict_on(request: PodRequest, *devices: Gpu, **columns: float):
    found = evaluate(request, fleet_of(a=node(*devices, **columns)), BINPACK, Outlook.empty())
    return verdict(found, 0)


def reason_on(request: PodRequest, *devices: Gpu, **columns: float) -> Reason | None:
    return verdict_on(request, *devices, **columns).reason


@pytest.mark.parametrize(
    ("request_", "devices", "reason", "code"),
    [
        pytest.param(wants(), [], Reason.NO_DEVICES, Code.UNRESOLVABLE, id="no GPU"),
        pytest.param(wants(), [gpu()], Reason.NO_SHARING_MODE, Code.UNRESOLVABLE, id="ours only"),
        pytest.param(wants(1, SHARED), [theirs()], Reason.NO_SHARING_MODE, Code.UNRESOLVABLE, id="another resource"),
        pytest.param(wants(1, MIG), [theirs()], Reason.NO_SHARING_MODE, Code.UNRESOLVABLE, id="no such instance"),
        pytest.param(wants(3), [theirs(), theirs()], Reason.TOO_FEW_DEVICES, Code.UNRESOLVABLE, id="more than all"),
        pytest.param(
            wants(gpu_architecture=">=ampere"),
            [theirs(T4)],
            Reason.NO_MATCHING_DEVICE,
            Code.UNRESOLVABLE,
            id="another type",
        ),
        pytest.param(
            wants(gpu_architecture=">=ampere"),
            [theirs(T4), theirs(A100)],
            Reason.NO_MATCHING_DEVICE,
            Code.UNRESOLVABLE,
            id="kubelet could choose the wrong type",
        ),
        pytest.param(
            wants(2),
            [theirs(), theirs(device_state=DeviceState.OUT)],
            Reason.NO_HEALTHY_DEVICE,
            Code.UNSCHEDULABLE,
            id="one of two is out",
        ),
        pytest.param(wants(), [theirs(taken=1)], Reason.NO_PLUGIN_REPLICA, Code.UNSCHEDULABLE, id="given out"),
        pytest.param(
            wants(2, SHARED),
            [theirs(resource=1, replicas=4, taken=3)],
            Reason.NO_PLUGIN_REPLICA,
            Code.UNSCHEDULABLE,
            id="one replica left",
        ),
        pytest.param(
            wants(2),
            [theirs(taken=1), theirs(), theirs(device_state=DeviceState.OUT)],
            Reason.NO_PLUGIN_REPLICA,
            Code.UNSCHEDULABLE,
            id="the free one is out",
        ),
    ],
)
def test_a_node_without_a_fitting_replica_is_refused(request_, devices, reason, code):
    found = verdict_on(request_, *devices)
    assert (found.reason, found.code) == (reason, code)


@pytest.mark.parametrize(
    ("request_", "devices"),
    [
        pytest.param(wants(2), [theirs(taken=1), theirs(), theirs()], id="whole devices"),
        pytest.param(wants(1, SHARED), [theirs(resource=1, replicas=4, taken=3)], id="a replica"),
        pytest.param(wants(1, MIG), [theirs(MIG_10GB, 2)], id="an instance"),
        pytest.param(wants(gpu_architecture="turing"), [theirs(T4), gpu(A100)], id="the other type is ours"),
        pytest.param(wants(), [theirs(device_state=DeviceState.SUSPECT)], id="suspect devices still serve"),
    ],
)
def test_a_node_with_fitting_replicas_takes_the_pod(request_, devices):
    assert verdict_on(request_, *devices).fits


def test_every_resource_that_a_pod_asks_has_to_be_there():
    both = PodRequest(plugin=(PluginAsk(GPU, 1), PluginAsk(MIG, 1)))
    assert reason_on(both, theirs(), theirs(MIG_10GB, 2)) is None
    assert reason_on(both, theirs(), theirs(MIG_10GB, 2, taken=1)) is Reason.NO_PLUGIN_REPLICA


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (NodeState.STALE, Reason.NO_REPORT),
        (NodeState.UNREPORTED, Reason.NO_REPORT),
        (NodeState.CONFLICTED, Reason.NODE_CONFLICTED),
    ],
)
def test_what_is_known_of_the_node_counts_as_for_our_devices(state, reason):
    assert reason_on(wants(), theirs(), node_state=state) is reason


def test_a_resource_that_no_node_has_is_offered_nowhere():
    assert reason_on(wants(1, "nvidia.com/mig-7g.80gb"), theirs()) is Reason.NO_SHARING_MODE


def test_devices_of_the_plugin_are_none_of_ours_to_share():
    assert reason_on(asks(share(GIB)), theirs()) is Reason.NO_SHARING_MODE


def test_binpack_takes_the_fuller_node_and_spread_the_emptier():
    of = fleet_of(a=[theirs(), theirs()], b=[theirs(taken=1), theirs()])
    assert winner(wants(), of, "binpack") == "b"
    assert winner(wants(), of, "spread") == "a"


def test_the_busy_one_of_equal_nodes_comes_last():
    of = fleet_of(a=[theirs(load=0.9)], b=[theirs(load=0.0)], c=[theirs(load=0.5)])
    found = evaluate(wants(), of, BINPACK, Outlook.empty())
    assert found.score[1] > found.score[2] > found.score[0]


def test_the_weakest_sufficient_type_is_taken():
    assert winner(wants(), fleet_of(a=[theirs(A100)], b=[theirs(L4)])) == "b"


def test_a_preferred_type_is_taken():
    request = PodRequest(plugin=(PluginAsk(GPU, 1),), preferences=parse_preferences("a100*"))
    assert winner(request, fleet_of(a=[theirs(A100)], b=[theirs(L4)])) == "a"


def test_no_share_is_named_and_nothing_is_booked():
    of = fleet_of(a=[theirs()])
    placed = allocation_on(wants(), of, of.rows["a"], BINPACK, Outlook.empty())
    assert isinstance(placed, PlacedPod)
    assert (placed.allocation.containers, placed.booked) == ((), ())


devices = st.builds(
    theirs,
    st.sampled_from((T4, L4, A100)),
    st.integers(0, 2),
    st.integers(0, 4),
    st.integers(0, 4),
    load=st.sampled_from((0.0, 0.5, float("nan"))),
    device_state=st.sampled_from(DeviceState),
)


@given(
    st.lists(st.lists(devices, max_size=4), min_size=1, max_size=6), st.integers(1, 3), st.sampled_from((GPU, SHARED))
)
def test_one_node_and_many_get_the_same_verdict_and_score(held, count, resource):
    request = wants(count, resource)
    of = fleet_of(**{f"n{number}": node(*each) for number, each in enumerate(held)})
    for policy in POLICIES.values():
        whole = evaluate(request, of, policy, Outlook.empty())
        for row in range(len(of)):
            alone = evaluate(request, of.take(np.array([row])), policy, Outlook.empty())
            assert (alone.code[0], alone.reason[0]) == (whole.code[row], whole.reason[row])
            assert alone.score[0] == whole.score[row]
            assert 0 <= whole.score[row] <= 1


def test_five_thousand_nodes_are_judged_in_milliseconds():
    eight = [theirs(taken=slot % 2) for slot in range(8)]
    of = fleet_of(**{f"n{number}": eight for number in range(64)})
    of = of.take(np.arange(5000) % 64)
    best = min(_seconds(lambda: evaluate(wants(2), of, BINPACK, Outlook.empty())) for _ in range(5))
    assert best < 0.1


def _seconds(action) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started
