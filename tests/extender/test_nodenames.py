"""Names that the scheduler sends are found whatever way they are written, and as one by one."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.errors import MalformedBody
from extender.namewords import UNKNOWN_ROW, NameWords
from extender.nodenames import NodeNames, SentNodes
from extender.objects import Pod
from extender.wire import NodesArgs
from scoring.draft import FleetDraft
from scoring.fleet import Fleet

names = st.text("abc-.é09", min_size=1, max_size=30)


def fleet_of(names: list[str], removed: list[str]) -> Fleet:
    draft = FleetDraft()
    for name in names:
        draft.add_node(name)
    for name in removed:
        draft.remove_node(name)
    return draft.freeze()


def sent(names_json: bytes, fleet: Fleet) -> SentNodes:
    return NodeNames().sent(NodesArgs(msgspec.convert({}, Pod), names_json), fleet)


def plain(names: list[str]) -> bytes:
    return json.dumps(names, separators=(",", ":"), ensure_ascii=False).encode()


class TestFinding:
    """Looked up a column at a time, names have the rows that a dictionary gives them."""

    @settings(max_examples=60, deadline=None)
    @given(st.lists(names, unique=True, min_size=1, max_size=80), st.data())
    def test_rows_equal_those_looked_up_one_by_one(self, known: list[str], data: st.DataObject) -> None:
        removed = data.draw(st.lists(st.sampled_from(known), max_size=3))
        fleet = fleet_of(known, removed)
        asked = data.draw(st.lists(st.sampled_from(known) | names, min_size=1, max_size=60))
        found = NameWords(fleet.names, fleet.rows).find(plain(asked))
        assert found is not None
        assert found[0].tolist() == [fleet.rows.get(name, UNKNOWN_ROW) for name in asked]
        assert [found[1].quoted(at) for at in range(len(asked))] == [plain([name])[1:-1] for name in asked]

    @settings(max_examples=30, deadline=None)
    @given(st.lists(names | st.text(max_size=5), max_size=40), st.sampled_from([None, 1]))
    def test_every_way_of_writing_a_list_is_understood(self, asked: list[str], indent: int | None) -> None:
        fleet = fleet_of([f"node-{number}" for number in range(100)], [])
        asked = [*asked, "node-7", "node-99"]
        found = sent(json.dumps(asked, indent=indent).encode(), fleet)
        once = list(dict.fromkeys(asked))
        assert found.rows.tolist() == [fleet.rows.get(name, UNKNOWN_ROW) for name in once]
        assert [json.loads(name) for name in found.names_json] == once


def test_two_names_in_one_place_of_the_table_are_told_apart() -> None:
    known = [f"n{number}" for number in range(5000)]
    fleet = fleet_of(known, [])
    found = NameWords(fleet.names, fleet.rows).find(plain(known))
    assert found is not None
    assert np.array_equal(found[0], np.arange(5000))


@pytest.mark.parametrize(
    "names_json",
    [
        pytest.param(b'["a",7]', id="a number"),
        pytest.param(b'["a" "b"]', id="no comma"),
        pytest.param(b'["a","\xff"]', id="no UTF-8"),
        pytest.param(b'["a",["b"]]', id="a list within"),
    ],
)
def test_what_is_no_list_of_names_is_refused(names_json: bytes) -> None:
    with pytest.raises(MalformedBody):
        sent(names_json, fleet_of([f"node-{number}" for number in range(100)], []))
