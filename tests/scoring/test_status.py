from __future__ import annotations

import pytest

from scoring.status import FITS, Code, Reason, Verdict


@pytest.mark.parametrize("reason", list(Reason))
def test_a_sentence_is_short_and_the_scheduler_can_count_it(reason):
    assert 0 < len(reason.sentence) <= 80
    assert not any(character.isdigit() for character in reason.sentence)
    assert "," not in reason.sentence


def test_sentences_tell_reasons_apart():
    assert len({reason.sentence for reason in Reason}) == len(Reason)


def test_codes_are_ordered_from_worst_to_best():
    assert Code.ERROR < Code.UNRESOLVABLE < Code.UNSCHEDULABLE < Code.FIT


def test_a_reason_goes_with_every_code_but_fit():
    assert FITS.fits
    assert not Verdict(Code.UNSCHEDULABLE, Reason.TOPOLOGY).fits
    with pytest.raises(ValueError, match="FIT with reason"):
        Verdict(Code.FIT, Reason.TOPOLOGY)
    with pytest.raises(ValueError, match="UNSCHEDULABLE with reason None"):
        Verdict(Code.UNSCHEDULABLE)
