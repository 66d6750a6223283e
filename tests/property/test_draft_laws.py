from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scoring.fleet import COLUMNS, Fleet, NodeState
from tests.support.fleet_strategies import hosts, node_lists
from tests.support.fleets import add_node, draft_of

_BOOKS = ("booked_mib", "booked_milli", "sharers")


class TestBooks:
    """Booking and taking away again is identity."""

    @given(node_lists(), st.data())
    @settings(max_examples=50, deadline=None)
    def test_book_then_unbook_is_identity(self, nodes, data):
        draft = draft_of(nodes)
        before = draft.freeze()
        row = data.draw(st.integers(0, len(before) - 1))
        slot, mib, milli = data.draw(
            st.tuples(st.integers(0, before.width - 1), st.integers(0, 999), st.integers(0, 999))
        )
        draft.book(row, slot, mib, milli, 1)
        draft.book(row, slot, -mib, -milli, -1)
        after = draft.freeze()
        for name in _BOOKS:
            assert np.array_equal(getattr(before, name), getattr(after, name))
        assert after.generation > before.generation
        assert after.changed_since(before.generation).tolist() == [row]


def _copy(of: Fleet) -> tuple[dict[str, np.ndarray], tuple[str, ...], dict[str, int], tuple[tuple[str, ...], ...]]:
    return {name: getattr(of, name).copy() for name in COLUMNS}, of.names, dict(of.rows), of.uuids


class DraftMachine(RuleBasedStateMachine):
    """Safety of snapshots: whatever is written afterwards, a snapshot never changes; the generation only grows."""

    def __init__(self) -> None:
        super().__init__()
        self.draft = draft_of({})
        self.names: set[str] = set()
        self.kept: list[tuple[Fleet, object]] = []
        self.generation = 0

    @rule(name=st.sampled_from("abcdefgh"), host=hosts(largest=10))
    def add(self, name, host):
        add_node(self.draft, name, host)
        self.names.add(name)

    @rule(name=st.sampled_from("abcdefgh"))
    def remove(self, name):
        self.draft.remove_node(name)
        self.names.discard(name)

    @precondition(lambda self: self.names)
    @rule(data=st.data(), mib=st.integers(-5, 5))
    def book(self, data, mib):
        row = self.draft.rows[data.draw(st.sampled_from(sorted(self.names)))]
        self.draft.book(row, 0, mib, mib, mib)
        self.draft.set_node(row, node_state=NodeState.STALE)
        self.draft.set_device(row, 0, foreign_mib=mib)

    @precondition(lambda self: self.names)
    @rule(data=st.data(), load=st.floats(0, 1, width=32))
    def measure(self, data, load):
        row = self.draft.rows[data.draw(st.sampled_from(sorted(self.names)))]
        before = self.draft.value("row_generation", row)
        self.draft.set_load(row, "load", np.array([load], np.float32))
        self.draft.set_load(row, "settling_milli", np.array([7], np.int32))
        assert self.draft.value("row_generation", row) == before

    @rule()
    def snapshot(self):
        of = self.draft.freeze()
        assert self.draft.freeze() is of
        self.kept = [*self.kept[-3:], (of, _copy(of))]

    @invariant()
    def snapshots_never_change(self):
        for of, (columns, names, rows, uuids) in self.kept:
            assert all(np.array_equal(getattr(of, name), columns[name], equal_nan=name == "load") for name in COLUMNS)
            assert (of.names, dict(of.rows), of.uuids) == (names, rows, uuids)

    @invariant()
    def generation_only_grows(self):
        assert self.draft.generation >= self.generation
        self.generation = self.draft.generation

    @invariant()
    def rows_and_names_agree(self):
        of = self.draft.freeze()
        assert {of.names[row] for row in of.rows.values()} == self.names == set(of.rows)
        empty = [row for row, name in enumerate(of.names) if not name]
        assert (of.node_state[empty] == NodeState.EMPTY).all()
        assert (of.kind[:, empty] == -1).all()


TestDraft = DraftMachine.TestCase
TestDraft.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
