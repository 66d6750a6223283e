"""Twenty-odd common mistakes, each with the answer that its author gets; the answers are in the files beside this one.

A changed answer is a changed product: look at it as its reader would before changing the file.
"""

from __future__ import annotations

import pytest

from extender.explain_words import EVENT_LENGTH, event_words
from extender.reason_advice import ADVICE
from scoring.status import Reason
from tests.cases.explain.scene import Case, cases, explained, without_scores
from tests.docs.tables import rows

_CASES = cases()


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case.name)
def test_mistake_is_explained(case: Case) -> None:
    lines = (without_scores(line) for line in explained(case.scene).words)
    assert "\n".join(lines) == case.answer.rstrip("\n")


def test_there_are_at_least_twenty_mistakes():
    assert len(_CASES) >= 20


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case.name)
def test_an_event_about_it_is_short(case: Case) -> None:
    answer = explained(case.scene)
    if answer.diagnosis is not None and not any(count.reason is None for count in answer.diagnosis.counts):
        assert 0 < len(event_words(answer.diagnosis, answer.waits)) <= EVENT_LENGTH


def test_advice_is_the_text_of_the_documentation():
    table = rows("reasons.md", "code")
    documented = {row["code"].strip("`"): (row["what it means"], row["what you can do"]) for row in table}
    assert {reason.value: (ADVICE[reason].means, ADVICE[reason].do) for reason in Reason} == documented
