from __future__ import annotations

import pytest

from scoring.conditions import parse_conditions
from scoring.fleet import DeviceState, ModeCode, NodeState
from scoring.outlook import Outlook
from scoring.pipeline import evaluate, verdict
from scoring.request import SharingMode
from scoring.status import Code, Reason
from tests.support.fleets import A100, BINPACK, GIB, H200, MIG_10GB, asks, fleet, gpu, node, reason, share, whole

OUT = {"device_state": DeviceState.OUT}


def _judged(request, host) -> tuple[Code, Reason | None]:
    found = verdict(evaluate(request, fleet(a=host), BINPACK, Outlook.empty()), 0)
    return found.code, found.reason


def _where(key: str, text: str, ask=None):
    return asks(ask or share(GIB), conditions=parse_conditions({f"tangram.dev/{key}": text}))


@pytest.mark.parametrize(
    ("request_", "devices", "expected"),
    [
        pytest.param(asks(share(GIB)), [], Reason.NO_DEVICES, id="no device"),
        pytest.param(asks(whole(3)), [gpu()] * 2, Reason.TOO_FEW_DEVICES, id="fewer devices than asked"),
        pytest.param(_where("gpu-product", "H200"), [gpu()], Reason.NO_MATCHING_DEVICE, id="another product"),
        pytest.param(
            _where("gpu-product", "H200", whole(2)),
            [gpu(H200), gpu()],
            Reason.NO_MATCHING_DEVICE,
            id="one of two matches",
        ),
        pytest.param(_where("gpu-uuid", "GPU-other"), [gpu()], Reason.NO_MATCHING_DEVICE, id="another device named"),
        pytest.param(_where("gpu-uuid", "!GPU-a-0"), [gpu()], Reason.NO_MATCHING_DEVICE, id="device named out"),
        pytest.param(asks(share(GIB)), [gpu(MIG_10GB)], Reason.NO_SHARING_MODE, id="only MIG instances"),
        pytest.param(asks(share(GIB)), [gpu(mode=ModeCode.PLUGIN)], Reason.NO_SHARING_MODE, id="the plugin's device"),
        pytest.param(asks(share(17 * GIB)), [gpu()], Reason.DEVICE_TOO_SMALL, id="memory of a larger device"),
        pytest.param(
            asks(share(None, 500), sharing=frozenset({SharingMode.MIG})),
            [gpu(MIG_10GB)],
            Reason.DEVICE_TOO_SMALL,
            id="compute of a larger instance",
        ),
    ],
)
def test_structure_refuses_for_good(request_, devices, expected):
    assert _judged(request_, devices) == (Code.UNRESOLVABLE, expected)


@pytest.mark.parametrize(
    ("request_", "devices", "expected"),
    [
        pytest.param(asks(share(GIB)), [gpu(**OUT)], Reason.NO_HEALTHY_DEVICE, id="device is out"),
        pytest.param(asks(whole(2)), [gpu(), gpu(**OUT)], Reason.NO_HEALTHY_DEVICE, id="one of two is out"),
        pytest.param(asks(share(8 * GIB)), [gpu(free_mib=GIB)], Reason.INSUFFICIENT_MEMORY, id="memory booked"),
        pytest.param(asks(share(8 * GIB)), [gpu(foreign_mib=9 * GIB)], Reason.INSUFFICIENT_MEMORY, id="memory foreign"),
        pytest.param(asks(share(GIB, 500)), [gpu(booked_milli=501)], Reason.INSUFFICIENT_COMPUTE, id="compute booked"),
        pytest.param(
            asks(share(GIB, 500, count=2)),
            [gpu(), gpu(booked_milli=501)],
            Reason.INSUFFICIENT_COMPUTE,
            id="one of two busy",
        ),
        pytest.param(asks(whole()), [gpu(free_mib=16_000)], Reason.NO_FREE_DEVICE, id="whole, memory booked"),
        pytest.param(asks(whole()), [gpu(booked_milli=1)], Reason.NO_FREE_DEVICE, id="whole, compute booked"),
        pytest.param(
            asks(share(GIB), sharing=frozenset({SharingMode.EXCLUSIVE})),
            [gpu(booked_milli=1)],
            Reason.NO_FREE_DEVICE,
            id="exclusive share on a device in use",
        ),
    ],
)
def test_state_refuses_for_now(request_, devices, expected):
    assert _judged(request_, devices) == (Code.UNSCHEDULABLE, expected)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (NodeState.FRESH, (Code.FIT, None)),
        (NodeState.STALE, (Code.UNSCHEDULABLE, Reason.NO_REPORT)),
        (NodeState.UNREPORTED, (Code.UNSCHEDULABLE, Reason.NO_REPORT)),
        (NodeState.CONFLICTED, (Code.UNSCHEDULABLE, Reason.NODE_CONFLICTED)),
        (NodeState.WITHOUT_DEVICES, (Code.UNSCHEDULABLE, Reason.NO_HEALTHY_DEVICE)),
        (NodeState.EMPTY, (Code.UNSCHEDULABLE, Reason.UNKNOWN_NODE)),
    ],
)
def test_only_a_node_with_a_fresh_report_takes_pods(state, expected):
    assert _judged(asks(share(GIB)), node(gpu(), node_state=state)) == expected


@pytest.mark.parametrize("state", [NodeState.STALE, NodeState.CONFLICTED])
def test_what_could_never_fit_is_said_even_without_a_report(state):
    host = node(gpu(), node_state=state)
    assert _judged(asks(share(17 * GIB)), host) == (Code.UNRESOLVABLE, Reason.DEVICE_TOO_SMALL)


def test_nothing_is_known_of_the_devices_of_a_node_that_never_reported():
    assert _judged(asks(share(GIB)), node(node_state=NodeState.UNREPORTED)) == (Code.UNSCHEDULABLE, Reason.NO_REPORT)


def test_suspect_devices_still_take_pods():
    assert reason(asks(share(GIB)), gpu(device_state=DeviceState.SUSPECT)) is None


def test_a_device_too_small_does_not_count_as_out():
    # The large one is out and the small one healthy: what is missing is a healthy device.
    assert reason(asks(share(20 * GIB)), gpu(A100, **OUT), gpu()) is Reason.NO_HEALTHY_DEVICE


def test_the_worst_verdict_of_several_containers_counts():
    pod = asks(share(8 * GIB, name="wait"), share(17 * GIB, name="never"))
    assert _judged(pod, [gpu(free_mib=GIB)]) == (Code.UNRESOLVABLE, Reason.DEVICE_TOO_SMALL)


def test_the_first_of_equally_bad_containers_names_the_reason():
    pod = asks(share(GIB, 600, name="compute"), share(8 * GIB, 1, name="memory"))
    assert _judged(pod, [gpu(free_mib=2 * GIB, booked_milli=500)])[1] is Reason.INSUFFICIENT_COMPUTE


def test_containers_that_need_more_mig_instances_than_there_are_never_fit():
    pod = asks(share(GIB, name="a"), share(GIB, name="b"), sharing=frozenset({SharingMode.MIG}))
    assert _judged(pod, [gpu(MIG_10GB)]) == (Code.UNRESOLVABLE, Reason.TOO_FEW_DEVICES)
