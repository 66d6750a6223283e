from __future__ import annotations

import re

from scoring.fleet import DeviceState
from scoring.request import ContainerKind, SharingMode
from tests.docs.tables import DOCS, rows

_TEXT = (DOCS / "glossary.md").read_text(encoding="utf-8").lower()


def test_words_are_in_order_and_told_once():
    words = [row["word"].lower() for row in rows("glossary.md", "word")]
    plain = [word.partition(" (")[0] for word in words]
    assert plain == sorted(plain)
    assert len(set(words)) == len(words)


def test_every_word_has_a_meaning():
    assert all(row["means here"] for row in rows("glossary.md", "word"))


def test_no_word_is_both_ours_and_not_ours():
    ours = {
        word.strip() for row in rows("glossary.md", "word") for word in re.sub(r"\(.*\)", "", row["word"]).split(",")
    }
    others = {word.strip() for row in rows("glossary.md", "word") for word in row["not"].split(",") if word.strip()}
    assert not (ours & others - {"slot"})


def test_values_that_users_meet_are_in_it():
    for value in (*ContainerKind, *SharingMode, DeviceState.SUSPECT.name.lower()):
        assert re.search(rf"\b{value.lower()}\b", _TEXT), value
