"""Prioritize recognises the filter before it by its bytes: the same pod, and exactly the names that passed."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from extender.objects import Pod
from extender.services import Memo, Memos, head_of
from extender.wire import decode_nodes_args
from scoring.request import PodRequest

POD = b'{"metadata":{"name":"p","uid":"u"}}'
SENT = b'["a","b","c"]'
PASSED = b'["a","c"]'


def body(names: bytes, pod: bytes = POD) -> bytes:
    return b'{"Pod":' + pod + b',"Nodes":null,"NodeNames":' + names + b"}"


def memos(filtered: bytes = body(SENT)) -> Memos:
    args, kept = decode_nodes_args(filtered), Memos()
    rows = np.array([0, 2], np.intp)
    judgement = None
    kept.keep(Memo(10.0, args.pod, head_of(filtered, args.names_json), PASSED, rows, PodRequest(()), judgement))  # type: ignore[arg-type]
    return kept


def test_same_pod_with_the_names_that_passed_is_recognised():
    found = memos().find(body(PASSED), 11.0)
    assert found is not None
    assert found.pod == msgspec.json.decode(POD, type=Pod)


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(body(SENT), id="other names"),
        pytest.param(body(b'["c","a"]'), id="another order"),
        pytest.param(body(PASSED, POD.replace(b'"u"', b'"v"')), id="another pod"),
        pytest.param(body(PASSED)[:-1] + b" ", id="another end"),
        pytest.param(body(PASSED) + b" ", id="more"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_anything_else_is_not(asked: bytes):
    assert memos().find(asked, 11.0) is None


def test_after_a_while_it_is_forgotten():
    assert memos().find(body(PASSED), 15.1) is None


def test_names_before_the_pod_are_not_remembered_by_bytes():
    """What comes before them would not hold the pod."""
    filtered = b'{"NodeNames":' + SENT + b',"Pod":' + POD + b"}"
    assert memos(filtered).find(b'{"NodeNames":' + PASSED + b',"Pod":' + POD + b"}", 11.0) is None
    assert memos(filtered).find(b'{"NodeNames":' + PASSED + b"}", 11.0) is None
