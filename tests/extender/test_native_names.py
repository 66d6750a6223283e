"""Names looked up and answers joined by the helper are those that Python gives, byte for byte."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender import wire
from extender.native_names import NameTable, open_names
from extender.nodenames import NodeNames
from scoring.status import Code
from tests.extender.test_nodenames import fleet_of, names, plain

_HELPER = open_names()

pytestmark = pytest.mark.skipif(_HELPER is None, reason="no helper was built: there is no C compiler here")


def table_of(known: list[str]) -> NameTable:
    assert _HELPER is not None
    return NameTable(_HELPER, wire.quote(known).tolist())


@settings(max_examples=200, deadline=None)
@given(st.lists(names, unique=True, min_size=1, max_size=80), st.data())
def test_known_names_are_found_where_they_are(known: list[str], data: st.DataObject) -> None:
    removed = data.draw(st.lists(st.sampled_from(known), max_size=3))
    fleet = fleet_of(known, removed)
    table = table_of(list(fleet.names))
    left = [name for name in known if name not in removed]
    asked = data.draw(st.permutations(left))[: data.draw(st.integers(0, len(left)))]
    found = table.find(plain(asked))
    assert (found is None) == (not asked)
    if found is not None:
        assert found.tolist() == [fleet.rows[name] for name in asked]


@settings(max_examples=200, deadline=None)
@given(st.lists(names, unique=True, min_size=2, max_size=40), st.data())
def test_a_list_with_anything_else_is_left_to_python(known: list[str], data: st.DataObject) -> None:
    table = table_of(known[1:])
    assert table.find(plain([*known[1:], known[0]])) is None, "a stranger"
    assert table.find(plain([*known[1:], known[1]])) is None, "a name that was sent twice"
    assert table.find(json.dumps(known[1:], indent=1).encode()) is None, "blanks"
    body = bytearray(plain(known[1:]))
    at = data.draw(st.integers(0, len(body) - 1))
    broken = bytes(body[:at])
    assert table.find(broken) is None, "a list cut off"
    body[at] = data.draw(st.integers(0, 255))
    found = table.find(bytes(body))
    if found is not None:
        assert [known[1:][row] for row in found.tolist()] == json.loads(bytes(body))
    assert table.find(plain(known[1:])) is not None, "and what was tried before leaves nothing behind"


@pytest.mark.parametrize(
    "body", [b"", b"[", b"[]", b'[""]', b'["', b'["]', b"[,]", b'["n-1",]', b'["n-1"', b'["n-1""n-2"]']
)
def test_what_is_no_list_of_names_is_left_to_python(body: bytes) -> None:
    assert table_of(["n-1", "n-2", ""]).find(body) is None


@settings(max_examples=200, deadline=None)
@given(st.lists(names, unique=True, min_size=1, max_size=60), st.data())
def test_answers_are_the_same_byte_for_byte(known: list[str], data: st.DataObject) -> None:
    table, quoted = table_of(known), wire.quote(known)
    rows = np.array(data.draw(st.permutations(range(len(known)))), np.intp)
    count = len(known)
    codes = data.draw(
        st.lists(st.sampled_from((Code.FIT, Code.UNSCHEDULABLE, Code.UNRESOLVABLE)), min_size=count, max_size=count)
    )
    reasons = data.draw(st.lists(st.integers(0, len(wire.REASONS) - 1), min_size=count, max_size=count))
    columns = np.array(codes, np.uint8), np.array(reasons, np.uint8)
    expected = wire.filter_answer_and_passed(quoted[rows], *columns)
    assert wire.filter_answer_by_table(table, rows, wire.filter_keys(*columns)) == expected
    scores = np.array(data.draw(st.lists(st.integers(0, 10), min_size=count, max_size=count)), np.int32)
    assert wire.prioritize_answer_by_table(table, rows, scores) == wire.prioritize_answer(quoted[rows], scores)


def test_no_names_make_the_same_empty_answers() -> None:
    table, nothing = table_of(["a"]), np.zeros(0, np.uint8)
    rows = np.zeros(0, np.intp)
    assert wire.filter_answer_by_table(table, rows, nothing)[0] == wire.filter_answer((), {}, {})
    assert wire.prioritize_answer_by_table(table, rows, nothing) == b"[]"


def test_the_same_nodes_are_sent_with_and_without_the_helper() -> None:
    known = [f"node-{number}" for number in range(100)]
    fleet = fleet_of(known, ["node-7"])
    bodies = [[name for name in known if name != "node-7"], known, ["node-3", "node-3", "else"]]
    for body in bodies:
        helped, alone = (NodeNames(helper).sent(_args(body), fleet) for helper in (_HELPER, None))
        assert helped.rows.tolist() == alone.rows.tolist()
        assert helped.names_json.tolist() == alone.names_json.tolist()
        kept, plainly = (NodeNames(helper).known(alone.rows, fleet) for helper in (_HELPER, None))
        assert kept.names_json.tolist() == plainly.names_json.tolist()


def test_a_helper_that_is_not_there_is_done_without(tmp_path) -> None:
    assert open_names(tmp_path) is None


def _args(asked: list[str]) -> wire.NodesArgs:
    return wire.NodesArgs(wire.Pod(), plain(asked))
