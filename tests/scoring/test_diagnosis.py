from __future__ import annotations

import math
from dataclasses import fields

import msgspec
import pytest

from scoring.annotations import CONDITION_KEYS
from scoring.conditions import ANY_DEVICE, Conditions, parse_conditions
from scoring.diagnosis import DETAILED, Diagnosis, Hindrance, diagnose, explain_node
from scoring.fleet import DeviceState, NodeState
from scoring.nearest import CONDITION_FIELDS, MOST_TRIALS, Change, ChangeKind, Trial, nearest_changes, without_condition
from scoring.outlook import Outlook
from scoring.request import ContainerKind, PodRequest, SharingMode, Topology
from scoring.status import Reason
from tests.support.fleets import A100, BINPACK, GIB, H200, MIG_10GB, T4, asks, draft_of, fleet, gpu, node, share, whole

NONE = Outlook.empty()


def _diagnose(request: PodRequest, **nodes) -> Diagnosis:
    return diagnose(request, fleet(**nodes), BINPACK, NONE)


def _changes(request: PodRequest, **nodes) -> dict[ChangeKind, Change]:
    return {change.kind: change for change in nearest_changes(request, Trial(fleet(**nodes), BINPACK, NONE))}


def test_counts_say_how_many_nodes_share_a_reason():
    found = _diagnose(asks(share(20 * GIB)), a=[gpu()], b=[gpu()], c=[gpu(A100, free_mib=1)], d=[gpu(A100)], e=[])
    assert [(one.outcome, one.reason, one.nodes) for one in found.counts] == [
        ("unresolvable", Reason.DEVICE_TOO_SMALL, 2),
        ("unschedulable", Reason.INSUFFICIENT_MEMORY, 1),
        ("fit", None, 1),
        ("unresolvable", Reason.NO_DEVICES, 1),
    ]
    assert found.counts[0].sentence == Reason.DEVICE_TOO_SMALL.sentence
    assert found.counts[2].sentence == ""


def test_details_are_the_best_nodes_then_those_that_came_closest():
    many = {f"t{number}": [gpu()] for number in range(DETAILED + 3)}
    found = _diagnose(
        asks(share(20 * GIB)), **many, low=[gpu(A100, free_mib=1)], high=[gpu(A100, free_mib=9)], fits=[gpu(A100)]
    )
    assert [one.node for one in found.nodes[:3]] == ["fits", "high", "low"]
    assert len(found.nodes) == 1 + DETAILED


def test_only_the_rows_asked_for_are_looked_at():
    of = fleet(a=[gpu()], b=[gpu()], c=[gpu()])
    assert [one.node for one in diagnose(asks(share(1)), of, BINPACK, NONE, rows=[1]).nodes] == ["b"]


def test_rows_of_nodes_that_left_are_not_counted():
    draft = draft_of({"a": [gpu()], "b": [gpu()]})
    draft.remove_node("a")
    assert [one.nodes for one in diagnose(asks(share(1)), draft.freeze(), BINPACK, NONE).counts] == [1]


def test_nothing_to_look_at_is_an_answer_too():
    found = diagnose(asks(share(1)), fleet(), BINPACK, NONE)
    assert (found.counts, found.nodes, found.changes, found.if_emptied) == ((), (), (), 0)


def test_request_without_devices_has_no_diagnosis():
    with pytest.raises(ValueError, match="without devices"):
        diagnose(asks(), fleet(a=[gpu()]), BINPACK, NONE)


def test_what_was_asked_is_shown_as_understood():
    request = asks(
        share(4096, count=2, name="main"),
        conditions=parse_conditions({"tangram.dev/gpu-architecture": " Turing, "}),
        preferences=(("t4", 1.0),),
        workload="inference",
    )
    asked = _diagnose(request, a=[gpu()]).asked
    assert [(one.container, one.kind, one.count, one.memory_mib) for one in asked.containers] == [
        ("main", "app", 2, 4096)
    ]
    assert asked.conditions == (("gpu-architecture", "turing"),)
    assert (asked.sharing, asked.topology, asked.workload, asked.policy) == (
        ("time-slicing",),
        "any",
        "inference",
        "binpack",
    )


def test_each_device_says_what_hinders_it_first():
    request = asks(
        share(8 * GIB, 500),
        conditions=parse_conditions({"tangram.dev/gpu-uuid": "!GPU-a-0", "tangram.dev/gpu-product": "T4"}),
    )
    of = fleet(
        a=[
            gpu(),
            gpu(H200),
            gpu(mode=1),
            gpu(capacity_mib=4 * GIB),
            gpu(device_state=DeviceState.OUT),
            gpu(free_mib=6 * GIB),
            gpu(booked_milli=600),
            gpu(load=0.25, foreign_mib=GIB, sharers=2),
        ]
    )
    found = explain_node(request, of, 0, BINPACK, NONE).devices
    assert [one.shortages[0].hindrance for one in found] == [
        Hindrance.CONDITIONS,
        Hindrance.CONDITIONS,
        Hindrance.SHARING,
        Hindrance.TOO_SMALL,
        Hindrance.OUT,
        Hindrance.MEMORY,
        Hindrance.COMPUTE,
        None,
    ]
    assert [one.unmet for one in found[:3]] == [("gpu-uuid",), ("gpu-product",), ()]
    assert (found[5].free_mib, found[5].shortages[0].missing_mib) == (6 * GIB, 2 * GIB)
    assert (found[6].free_milli, found[6].shortages[0].missing_milli) == (400, 100)
    last = found[7]
    assert (last.load, last.foreign_mib, last.free_mib, last.sharers) == (0.25, GIB, 15 * GIB, 2)
    assert (found[4].state, found[2].mode, found[0].load, found[0].product) == ("out", "mps", None, T4.product)


def test_node_without_report_is_named_so():
    found = explain_node(asks(share(1)), fleet(a=node(gpu(), node_state=NodeState.STALE)), 0, BINPACK, NONE)
    assert (found.outcome, found.reason, found.chosen, found.parts) == ("unschedulable", Reason.NO_REPORT, (), ())
    assert found.devices[0].shortages[0].hindrance is Hindrance.OUT


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(asks(share(4 * GIB)), id="one share"),
        pytest.param(asks(whole(2)), id="two whole devices"),
        pytest.param(asks(share(9 * GIB, name="a"), share(4 * GIB, count=2, name="b")), id="two containers"),
        pytest.param(
            asks(share(GIB, name="i", kind=ContainerKind.INIT), share(4 * GIB, name="b")), id="with init container"
        ),
        pytest.param(asks(share(GIB, name="i", kind=ContainerKind.INIT)), id="only an init container"),
    ],
)
def test_parts_add_up_to_the_score(request_):
    of = fleet(a=[gpu(), gpu(A100, load=0.5, free_mib=40_000), gpu(numa=1, load=0.1)])
    found = explain_node(request_, of, 0, BINPACK, NONE)
    assert math.isclose(sum(part.weight * part.value for part in found.parts), found.score, abs_tol=1e-5)
    assert [part.scorer for part in found.parts] == [name for name, _ in BINPACK.weights]
    assert [name for name, _ in found.chosen] == [ask.name for ask in request_.containers]
    assert all(len(uuids) == ask.count for (_, uuids), ask in zip(found.chosen, request_.containers, strict=True))


def test_diagnosis_serialises_as_it_is():
    found = _diagnose(asks(share(20 * GIB)), a=[gpu()], b=[gpu(load=0.5)])
    plain = msgspec.json.decode(msgspec.json.encode(found))
    assert plain["nodes"][0]["reason"] == "DeviceTooSmall"
    assert plain["changes"][0]["kind"] == "less-memory"


class TestNearestChange:
    def test_less_memory_is_the_largest_amount_that_fits(self):
        change = _changes(asks(share(20 * GIB)), a=[gpu()], b=[gpu(free_mib=6 * GIB)])[ChangeKind.LESS_MEMORY]
        assert (change.text, change.nodes) == ("ask 16384 MiB of each GPU (gpu-memory: 16384)", 1)

    def test_totals_are_told_for_several_devices(self):
        # The second largest of 6, 5 and 4 GiB free is what two devices can both give.
        devices = [gpu(free_mib=size * GIB) for size in (6, 5, 4)]
        change = _changes(asks(share(8 * GIB, count=2)), a=devices)[ChangeKind.LESS_MEMORY]
        assert change.text == "ask 5120 MiB of each GPU (gpu-memory: 10240)"

    def test_less_compute_is_told_in_per_cent(self):
        change = _changes(asks(whole()), a=[gpu(free_mib=8 * GIB, booked_milli=333)])[ChangeKind.LESS_COMPUTE]
        # 50 % of 16,384 MiB are the 8 GiB that are left; compute would allow 66 %.
        assert (change.text, change.container) == ("ask 50 % of each GPU (gpu-compute: 50)", "main")

    def test_fewer_devices(self):
        assert _changes(asks(whole(5)), a=[gpu()] * 3)[ChangeKind.FEWER_DEVICES].text == "ask fewer GPUs (gpu: 3)"

    def test_one_condition_that_is_in_the_way(self):
        wanted = parse_conditions({"tangram.dev/gpu-architecture": ">=hopper", "tangram.dev/gpu-features": "int8"})
        found = nearest_changes(asks(share(GIB), conditions=wanted), Trial(fleet(a=[gpu()], b=[gpu()]), BINPACK, NONE))
        assert [(one.kind, one.text, one.nodes) for one in found] == [
            (ChangeKind.DROP_CONDITION, "drop gpu-architecture >=hopper", 2)
        ]

    def test_many_containers_are_tried_within_a_bound(self, monkeypatch):
        tried = []
        monkeypatch.setattr(Trial, "nodes", lambda _, request: tried.append(request) or 1)
        request = asks(*[share(8 * GIB, name=f"c{number}") for number in range(30)])
        assert nearest_changes(request, Trial(fleet(a=[gpu()]), BINPACK, NONE))
        assert len(tried) <= 2 * MOST_TRIALS

    def test_what_does_not_fit_at_its_least_is_not_searched(self, monkeypatch):
        tried = []
        monkeypatch.setattr(Trial, "nodes", lambda _, request: tried.append(request) or 0)
        assert nearest_changes(asks(share(8 * GIB)), Trial(fleet(a=[gpu()]), BINPACK, NONE)) == ()
        assert len(tried) == 1

    def test_topology(self):
        change = _changes(asks(whole(2), topology=Topology.NVLINK), a=[gpu(), gpu()])[ChangeKind.ANY_TOPOLOGY]
        assert change.text == "drop gpu-topology nvlink"

    def test_sharing(self):
        found = _changes(asks(share(GIB), sharing=frozenset({SharingMode.MPS})), a=[gpu()])
        assert found[ChangeKind.SHARED].text == "accept gpu-sharing time-slicing"

    def test_no_single_change_is_enough(self):
        assert _changes(asks(share(GIB)), a=[gpu(MIG_10GB)], b=[gpu(device_state=DeviceState.OUT)]) == {}

    def test_changes_are_looked_for_only_where_nothing_fits(self):
        found = _diagnose(asks(share(GIB)), a=[gpu()], b=[gpu(free_mib=0)])
        assert (found.changes, found.if_emptied) == ((), 2)

    def test_waiting_helps_where_an_empty_node_would_do(self):
        assert _diagnose(asks(whole(2)), a=[gpu(), gpu(free_mib=0)], b=[gpu()]).if_emptied == 1


def test_every_condition_can_be_dropped():
    assert tuple(CONDITION_FIELDS) == CONDITION_KEYS
    assert {name for names in CONDITION_FIELDS.values() for name in names} == {
        field.name for field in fields(Conditions)
    }


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("gpu-architecture", ">=ampere"),
        ("gpu-product", "T4,!L4"),
        ("gpu-compute-capability", ">=8.0"),
        ("gpu-total-memory", ">=40Gi"),
        ("gpu-driver", ">=535"),
        ("gpu-cuda", ">=12.4"),
        ("gpu-features", "int8,!mig"),
        ("gpu-uuid", "GPU-a,!GPU-b"),
        ("mig-profile", "1g.10gb"),
    ],
)
def test_dropping_a_condition_leaves_none_of_it(key, text):
    assert without_condition(parse_conditions({f"tangram.dev/{key}": text}), key) == ANY_DEVICE
