"""A term that is taken out has no weight, for numpy and for the helper, and has it again afterwards."""

from __future__ import annotations

import pytest

from benchmarks.quality.ablation import TERMS, without
from scoring import native


@pytest.mark.parametrize("term", [name for name, found in TERMS.items() if found is not None])
def test_a_term_has_no_weight_within_the_block_and_its_own_after_it(term):
    module, name = TERMS[term]
    before = getattr(module, name)
    assert before > 0
    with without(term):
        assert getattr(module, name) == getattr(native, name) == 0
    assert getattr(module, name) == getattr(native, name) == before


def test_all_terms_leaves_everything_as_it_is():
    with without("all"):
        assert all(getattr(module, name) > 0 for module, name in filter(None, TERMS.values()))
