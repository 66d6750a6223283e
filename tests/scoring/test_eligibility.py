from __future__ import annotations

import pytest

from scoring.conditions import parse_conditions
from scoring.eligibility import eligible, mode_matches
from scoring.fleet import DeviceState, ModeCode, NodeState
from scoring.request import SharingMode
from tests.support.fleets import A100, L4, T4, asks, fleet, gpu, node, share

TIME, MPS, MIG, EXCLUSIVE = SharingMode.TIME_SLICING, SharingMode.MPS, SharingMode.MIG, SharingMode.EXCLUSIVE


@pytest.mark.parametrize(
    ("sharing", "modes"),
    [
        ({TIME}, {ModeCode.TIME_SLICING}),
        ({MPS}, {ModeCode.MPS}),
        ({MIG}, {ModeCode.MIG}),
        ({TIME, MIG}, {ModeCode.TIME_SLICING, ModeCode.MIG}),
        ({EXCLUSIVE}, {ModeCode.TIME_SLICING, ModeCode.MPS}),
        ({EXCLUSIVE, MIG}, {ModeCode.TIME_SLICING, ModeCode.MPS, ModeCode.MIG}),
    ],
)
def test_modes_that_can_give_what_is_accepted(sharing, modes):
    matches = mode_matches(asks(share(1), sharing=frozenset(sharing)))
    assert {mode for mode in ModeCode if matches[mode]} == modes


def test_each_mask_is_included_in_the_one_before():
    of = fleet(a=[gpu(T4), gpu(A100), gpu(A100, mode=ModeCode.MPS), gpu(A100, device_state=DeviceState.OUT)])
    request = asks(share(1), conditions=parse_conditions({"tangram.dev/gpu-architecture": "ampere"}))
    masks = eligible(request, of)
    assert [mask[:5, 0].tolist() for mask in (masks.present, masks.matching, masks.sharing, masks.usable)] == [
        [True, True, True, True, False],
        [False, True, True, True, False],
        [False, True, False, True, False],
        [False, True, False, False, False],
    ]


def test_no_device_of_a_node_without_fresh_report_is_usable():
    assert not eligible(asks(share(1)), fleet(a=node(gpu(), node_state=NodeState.STALE))).usable.any()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GPU-a-0", [[True, False], [False, False]]),
        ("!GPU-a-0", [[False, True], [True, True]]),
        ("GPU-a-0,GPU-b-1,!GPU-a-0", [[False, False], [False, True]]),
        ("GPU-elsewhere", [[False, False], [False, False]]),
    ],
)
def test_devices_are_named_in_and_out_on_every_node(text, expected):
    of = fleet(a=[gpu(L4), gpu(L4)], b=[gpu(L4), gpu(L4)])
    request = asks(share(1), conditions=parse_conditions({"tangram.dev/gpu-uuid": text}))
    assert eligible(request, of).matching[:2].T.tolist() == expected
