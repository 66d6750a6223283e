"""The helper in C is an option: what it is not there for, or does not know, numpy does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scoring import native_library
from scoring.helper import Question
from scoring.native import Native
from scoring.native_library import LIBRARY, SCORERS, open_library
from scoring.outlook import Outlook
from scoring.pipeline import evaluate
from scoring.registry import build_policies
from tests.support.fleets import T4, asks, fleet, gpu, share, whole

NATIVE = Native.load()
needs_helper = pytest.mark.skipif(NATIVE is None, reason="no helper was built: there is no C compiler here")


def test_a_folder_without_a_helper_has_none(tmp_path: Path) -> None:
    assert open_library(tmp_path) is None


def test_a_file_that_is_no_library_is_no_helper(tmp_path: Path) -> None:
    (tmp_path / LIBRARY).write_bytes(b"not a library")
    assert open_library(tmp_path) is None


@needs_helper
def test_a_helper_of_another_layout_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_library() is not None
    monkeypatch.setattr(native_library, "LAYOUT", native_library.LAYOUT + 1)
    assert open_library() is None


@needs_helper
@pytest.mark.parametrize(
    ("request_", "weights"),
    [
        (asks(whole(), cpu_milli=2**40), {"packing": 1}),
        (asks(whole(count=40_000)), {"packing": 1}),
        (asks(whole()), {"fragmentation": 1}),
    ],
)
def test_what_the_helper_does_not_know_is_left_to_numpy(request_, weights) -> None:
    assert NATIVE is not None
    of = fleet(a=[gpu(T4)], b=[gpu(T4), gpu(T4)])
    plain = build_policies({"own": weights})["own"]
    assert not NATIVE.can_do(Question(request_, of, plain.weights, Outlook.empty()))
    helped = replace(plain, helper=NATIVE)
    found, expected = (evaluate(request_, of, policy, Outlook.empty()) for policy in (helped, plain))
    assert np.array_equal(found.code, expected.code)
    assert np.array_equal(found.score, expected.score)


@needs_helper
def test_the_helper_knows_every_scorer_of_the_policies_that_come_with_it() -> None:
    named = {name for policy in build_policies().values() for name, _ in policy.weights}
    assert named <= set(SCORERS)


@needs_helper
def test_shapes_beyond_number_keep_nothing_forever() -> None:
    assert NATIVE is not None
    helped, of = replace(build_policies()["binpack"], helper=NATIVE), fleet(a=[gpu(T4)])
    for mib in range(1, 1200):
        evaluate(asks(share(mib)), of, helped, Outlook.empty())
    assert len(NATIVE._asks) <= 512
