"""Which device (cases D1 to D9), and load and memory that is not ours (L1, L2, W3), at the core."""

from __future__ import annotations

import math

import pytest

from scoring.conditions import parse_conditions, product_problems
from scoring.errors import InvalidPolicy
from scoring.outlook import Outlook
from scoring.registry import build_policies
from scoring.status import Reason
from scoring.workload import MixHistogram
from tests.support.fleets import (
    A100,
    A100_40,
    GIB,
    H20,
    H200,
    T4,
    asks,
    draft_of,
    fleet,
    gpu,
    node,
    reason,
    reasons,
    run_all,
    share,
    slots_on,
    whole,
    winner,
)


def _asking(text: str, key: str = "gpu-product"):
    return asks(share(4 * GIB), conditions=parse_conditions({f"tangram.dev/{key}": text}))


def test_d1_h20_is_not_h200():
    assert reasons(_asking("H20"), fleet(small=[gpu(H20)], large=[gpu(H200)])) == {
        "small": None,
        "large": Reason.NO_MATCHING_DEVICE,
    }


@pytest.mark.parametrize("text", ["A100*,", " , A100*", "A100*,,"])
def test_d2_empty_parts_of_a_list_have_no_effect(text):
    found = reasons(_asking(text), fleet(a=[gpu(A100)], t=[gpu(T4)]))
    assert found == {"a": None, "t": Reason.NO_MATCHING_DEVICE}


@pytest.mark.parametrize("key", ["gpu-product", "gpu-uuid", "gpu-architecture"])
@pytest.mark.parametrize("text", ["", " ", ",", " , "])
def test_d2_an_empty_list_has_no_effect(key, text):
    assert reasons(_asking(text, key), fleet(t=[gpu(T4)])) == {"t": None}


@pytest.mark.parametrize("text", ["GPU-x,GPU-y,!GPU-x", "!GPU-x,GPU-x,GPU-y"], ids=["in then out", "out then in"])
def test_d3_a_device_named_in_and_out_is_out(text):
    of = fleet(a=[gpu(uuid="GPU-x"), gpu(uuid="GPU-y"), gpu(uuid="GPU-z")])
    assert slots_on(_asking(text, "gpu-uuid"), of) == [(1,)]


@pytest.mark.parametrize("text", ["Tesla T4", "tesla t4", "Tesla-T4", "T4", "NVIDIA-Tesla-T4"])
def test_d4_every_spelling_of_a_product_is_understood(text):
    assert reasons(_asking(text), fleet(t=[gpu(T4)], a=[gpu(A100)])) == {"t": None, "a": Reason.NO_MATCHING_DEVICE}


def test_d4_an_unknown_product_is_refused_with_the_nearest():
    (problem,) = product_problems(parse_conditions({"tangram.dev/gpu-product": "H201"}))
    assert problem.found.lower() == "h201"
    assert "H200" in problem.valid


def test_d5_memory_is_that_of_each_device_never_an_average():
    of = fleet(mixed=[gpu(A100_40), gpu(A100)], small=[gpu(A100_40), gpu(A100_40)])
    assert reasons(asks(share(60 * GIB)), of) == {"mixed": None, "small": Reason.DEVICE_TOO_SMALL}
    assert slots_on(asks(share(60 * GIB)), of, "mixed") == [(1,)]


def test_d6_five_pods_that_fit_two_two_and_one():
    draft = draft_of({"a": [gpu(capacity_mib=23_552)] * 4})
    assert run_all([asks(share(10_240))] * 5, draft) == ["a"] * 5
    assert sorted(draft.freeze().sharers[:4, 0].tolist()) in ([0, 1, 2, 2], [1, 1, 1, 2])


@pytest.mark.parametrize("policy", ["spread", "latency"])
def test_d7_the_least_loaded_device_is_taken_whatever_its_numa_node(policy):
    of = fleet(a=[gpu(numa=0, load=0.9), gpu(numa=0, load=0.7), gpu(numa=1, load=0.3), gpu(numa=1, load=0.1)])
    assert slots_on(asks(share(4 * GIB)), of, policy=policy) == [(3,)]


def test_d8_binpack_keeps_whole_nodes_for_those_who_need_them():
    free, full = gpu(), gpu(free_mib=0, booked_milli=1000)
    draft = draft_of({"x": [free] * 4 + [full] * 4, "y": [free] * 4 + [full] * 4, "z": [free] * 2 + [full] * 6})
    nodes = run_all([asks(whole(2)), asks(whole(4)), asks(whole(4))], draft)
    assert nodes[0] == "z"
    assert set(nodes[1:]) == {"x", "y"}


def test_d9_an_unknown_scorer_is_refused_with_the_valid_ones():
    with pytest.raises(
        InvalidPolicy,
        match=r"policy mine: unknown scorer 'paking' \(nearest: packing\), valid are .*packing, preference",
    ):
        build_policies({"mine": {"paking": 1}})


_HALF_FOREIGN = {"foreign_mib": 8 * GIB}


@pytest.mark.parametrize("policy", ["binpack", "spread", "latency"])
@pytest.mark.parametrize("knows", [False, True], ids=["no outlook", "pods of many kinds expected"])
def test_l1_memory_of_foreign_processes_is_not_offered_and_their_device_comes_last(policy, knows):
    assert reason(asks(share(9 * GIB)), gpu(**_HALF_FOREIGN)) is Reason.INSUFFICIENT_MEMORY
    assert reason(asks(share(8 * GIB)), gpu(**_HALF_FOREIGN)) is None
    histogram = MixHistogram()
    for request in (asks(whole()), asks(share(2 * GIB)), asks(whole(2))):
        histogram.note(request)
    of = fleet(a=[gpu(**_HALF_FOREIGN), gpu()], b=[gpu(**_HALF_FOREIGN), gpu(**_HALF_FOREIGN)])
    outlook = Outlook.of(histogram.mix(), of.kinds) if knows else Outlook.empty()
    assert slots_on(asks(share(2 * GIB)), of, policy=policy) == [(1,)]
    assert winner(asks(share(2 * GIB)), of, policy, outlook) == "a"


def test_l1_a_device_with_foreign_processes_is_not_given_whole():
    assert reason(asks(whole()), gpu(foreign_mib=1)) is Reason.NO_FREE_DEVICE


def test_l2_memory_reserved_by_the_driver_is_not_offered():
    t4 = gpu(T4, capacity_mib=T4.total_mib - 450)
    assert reason(asks(share(T4.total_mib)), t4) is Reason.DEVICE_TOO_SMALL
    assert reason(asks(share(T4.total_mib - 450)), t4) is None


@pytest.mark.parametrize("policy", ["binpack", "spread", "latency"])
def test_l3_unknown_load_is_neither_idle_nor_full(policy):
    of = fleet(a=[gpu(load=1.0), gpu(load=math.nan), gpu(load=0.0)])
    assert slots_on(asks(share(1 * GIB)), of, policy=policy) == [(2,)]
    assert slots_on(asks(share(1 * GIB)), fleet(a=[gpu(load=1.0), gpu(load=math.nan)]), policy=policy) == [(1,)]
    assert reason(asks(share(1 * GIB)), gpu(load=math.nan), policy=policy) is None


@pytest.mark.parametrize("ask", [share(1), share(None, 1), whole()], ids=["memory", "compute", "whole"])
def test_w3_a_device_without_memory_is_skipped(ask):
    broken = gpu(capacity_mib=0)
    assert reason(asks(ask), broken) is Reason.DEVICE_TOO_SMALL
    assert slots_on(asks(ask), fleet(a=[broken, gpu()])) == [(1,)]


def test_w3_a_device_without_compute_is_skipped():
    assert slots_on(asks(share(None, 10)), fleet(a=[gpu(capacity_milli=0), gpu()])) == [(1,)]


def test_stale_load_of_one_node_does_not_block_it():
    of = fleet(a=node(gpu(load=math.nan)))
    assert winner(asks(share(1 * GIB)), of) == "a"
