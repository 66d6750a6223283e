"""What a pod asks (cases A4 to A8) and books (B1, B3, B4, B11), at the core."""

from __future__ import annotations

from scoring.diagnosis import diagnose
from scoring.outlook import Outlook
from scoring.pipeline import evaluate, verdict
from scoring.request import ContainerKind
from scoring.status import Code, Reason
from tests.support.fleets import (
    A100,
    A100_40,
    BINPACK,
    GIB,
    asks,
    draft_of,
    fleet,
    gpu,
    place_on,
    reason,
    reasons,
    run_all,
    share,
    whole,
)

INIT, SIDECAR = ContainerKind.INIT, ContainerKind.SIDECAR


def test_a4_init_and_app_container_share_what_is_booked():
    pod = asks(share(20 * GIB, name="init", kind=INIT), share(10 * GIB, name="app"))
    placed = place_on(pod, fleet(a=[gpu(capacity_mib=24 * GIB)]))
    # max(20, 10) GiB; compute follows: 1000 * 20 / 24 = 833.3
    assert placed.booked == ((0, 20 * GIB, 833),)


def test_a4_two_such_pods_need_two_devices():
    pod = asks(share(20 * GIB, name="init", kind=INIT), share(10 * GIB, name="app"))
    draft = draft_of({"a": [gpu(capacity_mib=24 * GIB)] * 2})
    assert run_all([pod] * 3, draft) == ["a", "a", None]


def test_a5_sidecar_runs_beside_the_app():
    pod = asks(share(10 * GIB, name="proxy", kind=SIDECAR), share(10 * GIB, name="app"))
    assert place_on(pod, fleet(a=[gpu(A100_40)])).booked == ((0, 20 * GIB, 500),)


def test_a5_init_container_runs_beside_the_sidecars_before_it():
    pod = asks(
        share(4 * GIB, name="before", kind=INIT),
        share(10 * GIB, name="proxy", kind=SIDECAR),
        share(20 * GIB, name="after", kind=INIT),
        share(10 * GIB, name="app"),
    )
    # First 4 GiB, then 10 + 20 = 30, at last 10 + 10 = 20.
    assert place_on(pod, fleet(a=[gpu(A100_40)])).booked == ((0, 30 * GIB, 750),)


def test_a6_each_container_gets_its_own_devices_by_name():
    pod = asks(whole(name="first"), whole(name="third"))
    given = dict(place_on(pod, fleet(a=[gpu(), gpu()])).allocation.containers)
    assert set(given) == {"first", "third"}
    assert given["first"][0].uuid != given["third"][0].uuid


def test_a7_more_devices_than_any_node_has_is_refused_for_good():
    of = fleet(a=[gpu()] * 8, b=[gpu(free_mib=0)] * 8)
    found = evaluate(asks(whole(16)), of, BINPACK, Outlook.empty())
    assert [verdict(found, row) for row in (0, 1)] == [verdict(found, 0)] * 2
    assert (verdict(found, 0).code, verdict(found, 0).reason) == (Code.UNRESOLVABLE, Reason.TOO_FEW_DEVICES)


def test_a7_also_when_several_containers_ask_for_them():
    pod = asks(whole(8, name="one"), whole(8, name="two"))
    found = evaluate(pod, fleet(a=[gpu(free_mib=0)] * 8), BINPACK, Outlook.empty())
    assert (verdict(found, 0).code, verdict(found, 0).reason) == (Code.UNRESOLVABLE, Reason.TOO_FEW_DEVICES)


def test_a8_too_little_on_each_device_is_explained_with_both_amounts():
    of = fleet(a=[gpu(A100, free_mib=10 * GIB), gpu(A100, free_mib=30 * GIB)])
    pod = asks(share(40 * GIB, count=2))
    assert reasons(pod, of) == {"a": Reason.INSUFFICIENT_MEMORY}
    (looked_at,) = diagnose(pod, of, BINPACK, Outlook.empty()).nodes
    assert [device.free_mib for device in looked_at.devices] == [10 * GIB, 30 * GIB]
    assert [device.shortages[0].missing_mib for device in looked_at.devices] == [30 * GIB, 10 * GIB]


def test_b1_no_rounding_in_anyones_favour():
    # 23 * 2,000 = 46,000 of 46,068 MiB
    draft = draft_of({"a": [gpu(A100_40, capacity_mib=46_068)]})
    assert run_all([asks(share(2_000))] * 24, draft) == ["a"] * 23 + [None]


def test_b3_sixteen_halves_fill_eight_devices():
    draft = draft_of({"a": [gpu(A100)] * 8})
    assert run_all([asks(share(None, 500))] * 17, draft) == ["a"] * 16 + [None]
    assert draft.freeze().sharers[:, 0].tolist() == [2] * 8


def test_b4_whole_devices_are_different():
    draft = draft_of({"a": [gpu(A100)] * 8})
    assert run_all([asks(whole(count)) for count in (2, 2, 4)], draft) == ["a"] * 3
    assert draft.freeze().sharers[:, 0].tolist() == [1] * 8


def test_b11_two_pods_with_all_compute_are_on_different_devices():
    draft = draft_of({"a": [gpu(capacity_mib=16 * GIB)] * 2})
    assert run_all([asks(share(16_000, 1000))] * 3, draft) == ["a", "a", None]
    assert draft.freeze().sharers[:2, 0].tolist() == [1, 1]


def test_b11_compute_is_refused_where_memory_would_do():
    assert reason(asks(share(1_000, 1000)), gpu(free_mib=8 * GIB, booked_milli=1)) is Reason.INSUFFICIENT_COMPUTE
