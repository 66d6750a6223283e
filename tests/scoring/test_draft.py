from __future__ import annotations

import math
import zlib
from typing import Literal

import numpy as np
import pytest

from scoring.catalog import WHOLE_SM_MILLI
from scoring.draft import FleetDraft
from scoring.fleet import DEVICE_COLUMNS, NO_KIND, DeviceState, NodeState
from tests.support.fleets import A100, T4, add_node, draft_of, gpu, node


def test_a_new_node_is_without_devices_until_told_otherwise():
    draft = FleetDraft()
    row = draft.add_node("a")
    assert draft.value("node_state", row) == NodeState.WITHOUT_DEVICES
    assert draft.value("order", row) == zlib.crc32(b"a")
    assert draft.uuids(row) == ()


def test_adding_a_node_twice_equals_once():
    draft = FleetDraft()
    row, generation = draft.add_node("a"), draft.generation
    assert (draft.add_node("a"), draft.generation) == (row, generation)


def test_devices_are_written_by_slot_and_the_rest_is_empty():
    draft = draft_of({"a": [gpu(T4, numa=1), gpu(A100)]})
    row = draft.rows["a"]
    assert [draft.value("capacity_mib", row, slot) for slot in range(3)] == [T4.total_mib, A100.total_mib, 0]
    assert draft.value("capacity_milli", row, 0) == WHOLE_SM_MILLI
    assert [draft.value("numa", row, slot) for slot in range(3)] == [1, -1, -1]
    assert draft.value("kind", row, 2) == NO_KIND == DEVICE_COLUMNS["kind"][1]
    assert math.isnan(draft.value("load", row, 0))


def test_replacing_devices_empties_what_they_had():
    draft = draft_of({"a": [gpu(free_mib=0), gpu(free_mib=0)]})
    add_node(draft, "a", [gpu()])
    of = draft.freeze()
    assert of.booked_mib[:2, 0].tolist() == [0, 0]
    assert of.uuids[0] == ("GPU-a-0",)
    assert of.kind[:2, 0].tolist() == [0, NO_KIND]


@pytest.mark.parametrize("again", ["devices", "device", "node", "nothing"])
def test_writing_what_is_there_changes_nothing(again):
    draft = draft_of({"a": node(gpu(load=0.5))})
    of, row = draft.freeze(), draft.rows["a"]
    match again:
        case "devices":
            add_node(draft, "a", node(gpu(load=0.5)))
        case "device":
            draft.set_device(row, 0, booked_mib=0, device_state=DeviceState.HEALTHY)
        case "node":
            draft.set_node(row, node_state=NodeState.FRESH)
    assert draft.freeze() is of


def test_unknown_load_written_again_changes_nothing():
    draft = draft_of({"a": [gpu()]})
    of = draft.freeze()
    draft.set_device(draft.rows["a"], 0, load=math.nan)
    assert draft.freeze() is of


def test_a_removed_node_leaves_an_empty_row_for_the_next():
    draft = draft_of({"a": [gpu(free_mib=1)], "b": [gpu()]})
    row = draft.rows["a"]
    draft.remove_node("a")
    of = draft.freeze()
    assert (of.names, dict(of.rows), of.uuids[row]) == (("", "b"), {"b": 1}, ())
    assert of.node_state[row] == NodeState.EMPTY
    assert (of.kind[:, row] == NO_KIND).all()
    assert of.booked_mib[0, row] == 0
    assert draft.add_node("c") == row


def test_removing_an_unknown_node_is_ignored():
    draft = draft_of({"a": [gpu()]})
    of = draft.freeze()
    draft.remove_node("z")
    assert draft.freeze() is of


def test_a_snapshot_keeps_its_values_and_is_read_only():
    draft = draft_of({"a": [gpu()]})
    before = draft.freeze()
    draft.book(draft.rows["a"], 0, 100, 10, 1)
    after = draft.freeze()
    assert (before.booked_mib[0, 0], after.booked_mib[0, 0]) == (0, 100)
    assert (after.booked_milli[0, 0], after.sharers[0, 0]) == (10, 1)
    with pytest.raises(ValueError, match="read-only"):
        before.booked_mib[0, 0] = 1


def test_columns_that_did_not_change_are_shared_between_snapshots():
    draft = draft_of({"a": [gpu()]})
    before = draft.freeze()
    draft.book(draft.rows["a"], 0, 100, 10, 1)
    after = draft.freeze()
    assert np.shares_memory(before.capacity_mib, after.capacity_mib)
    assert not np.shares_memory(before.booked_mib, after.booked_mib)


@pytest.mark.parametrize(
    ("column", "values"),
    [("load", np.array([0.5, 0.25], np.float32)), ("settling_milli", np.array([100, 0], np.int32))],
)
def test_load_is_no_change_of_the_row_but_a_new_generation(
    column: Literal["load", "settling_milli"], values: np.ndarray
):
    draft = draft_of({"a": [gpu(), gpu()]})
    before = draft.freeze()
    draft.set_load(draft.rows["a"], column, values)
    after = draft.freeze()
    assert getattr(after, column)[:2, 0].tolist() == values.tolist()
    assert after.generation == before.generation + 1
    assert after.changed_since(before.generation).size == 0


def test_it_grows_in_rows_and_in_width():
    draft = draft_of({f"n{number}": [gpu()] for number in range(70)})
    before = draft.freeze()
    add_node(draft, "wide", [gpu()] * 16)
    of = draft.freeze()
    assert (len(of), of.width, before.width) == (71, 16, 8)
    assert (of.kind[0] == 0).all()
    assert of.kind[:, 70].tolist() == [0] * 16
    assert of.row_generation[:70].tolist() == before.row_generation.tolist()


def test_equal_kinds_have_one_number():
    draft = FleetDraft()
    assert [draft.kind_index(kind) for kind in (T4, A100, T4)] == [0, 1, 0]
    assert draft.freeze().kinds == (T4, A100)


def test_a_load_that_binary_cannot_hold_exactly_is_still_the_same():
    draft = draft_of({"a": [gpu(load=0.1)]})
    of = draft.freeze()
    draft.set_device(draft.rows["a"], 0, load=0.1)
    assert draft.freeze() is of
