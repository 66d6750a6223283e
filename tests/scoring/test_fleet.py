from __future__ import annotations

import numpy as np
import pytest

from scoring.fleet import COLUMNS, DeviceState, ModeCode, NodeState
from scoring.request import SharingMode
from tests.support.fleets import draft_of, fleet, gpu, node


def test_take_cuts_rows_out_in_the_order_asked():
    of = fleet(a=[gpu(free_mib=1)], b=[gpu(free_mib=2)], c=[gpu(free_mib=3)])
    part = of.take(np.array([2, 0]))
    assert part.names == ("c", "a")
    assert dict(part.rows) == {"c": 0, "a": 1}
    assert part.uuids == (("GPU-c-0",), ("GPU-a-0",))
    assert part.booked_mib[0].tolist() == [of.booked_mib[0, 2], of.booked_mib[0, 0]]
    assert (len(part), part.width, part.generation) == (2, of.width, of.generation)


def test_all_columns_of_a_part_are_read_only():
    part = fleet(a=[gpu()]).take(np.array([0]))
    for name in COLUMNS:
        with pytest.raises(ValueError, match="read-only"):
            getattr(part, name)[...] = 0


def test_other_shares_are_imagined_without_touching_the_fleet():
    of = fleet(a=[gpu(), gpu(free_mib=0, booked_milli=1000)])
    other = of.with_shares({(0, 0): (100, 10, 1), (0, 1): (-16_384, -1000, -1)})
    assert other.booked_mib[:2, 0].tolist() == [100, 0]
    assert other.booked_milli[:2, 0].tolist() == [10, 0]
    assert other.sharers[:2, 0].tolist() == [1, 0]
    assert of.booked_mib[:2, 0].tolist() == [0, 16_384]
    assert other.generation == of.generation
    with pytest.raises(ValueError, match="read-only"):
        other.booked_mib[0, 0] = 1


def test_an_emptied_fleet_has_only_healthy_free_devices():
    of = fleet(a=node(gpu(free_mib=5, foreign_mib=7, device_state=DeviceState.OUT), node_state=NodeState.STALE))
    empty = of.emptied()
    assert empty.device_state[:2, 0].tolist() == [DeviceState.HEALTHY, DeviceState.ABSENT]
    for column in (empty.booked_mib, empty.booked_milli, empty.foreign_mib, empty.sharers):
        assert not column.any()
    assert empty.node_state.tolist() == [NodeState.FRESH]
    assert np.array_equal(empty.capacity_mib, of.capacity_mib)


def test_rows_that_changed_are_known_by_generation():
    draft = draft_of({"a": [gpu()], "b": [gpu()], "c": [gpu()]})
    seen = draft.generation
    draft.book(draft.rows["c"], 0, 1, 1, 1)
    draft.book(draft.rows["a"], 0, 1, 1, 1)
    assert draft.freeze().changed_since(seen).tolist() == [0, 2]
    assert draft.freeze().changed_since(draft.generation).tolist() == []


@pytest.mark.parametrize(
    ("mode", "sharing"),
    [
        (ModeCode.TIME_SLICING, SharingMode.TIME_SLICING),
        (ModeCode.MPS, SharingMode.MPS),
        (ModeCode.MIG, SharingMode.MIG),
        (ModeCode.PLUGIN, SharingMode.TIME_SLICING),
    ],
)
def test_each_mode_gives_one_kind_of_share(mode, sharing):
    assert mode.sharing is sharing


def test_rows_whose_scores_may_have_changed_include_those_with_another_load():
    draft = draft_of({"a": [gpu()], "b": [gpu()], "c": [gpu()]})
    seen = draft.generation
    draft.set_load(draft.rows["b"], "load", np.array([0.5], np.float32))
    draft.book(draft.rows["a"], 0, 1, 1, 1)
    assert draft.freeze().scored_since(seen).tolist() == [0, 1]
    assert draft.freeze().changed_since(seen).tolist() == [0]
