from __future__ import annotations

import re
from pathlib import Path

import scoring.policies.load as load_module
import scoring.policies.sufficiency as sufficiency_module
from scoring.registry import DEFAULT_POLICY, PROFILES, SCORERS
from tests.docs.tables import DOCS, rows


def test_every_scorer_has_a_row():
    assert [row["scorer"].strip("`") for row in rows("policies.md", "scorer", "formula")] == sorted(SCORERS)


def test_rows_of_scorers_are_complete():
    for row in rows("policies.md", "scorer", "formula"):
        assert all(row.values()), row


def test_weights_of_the_profiles_are_those_of_the_code():
    table = rows("policies.md", "scorer", "`binpack`")
    written: dict[str, dict[str, float]] = {name: {} for name in PROFILES}
    for row in table:
        for name in PROFILES:
            if row[f"`{name}`"]:
                written[name][row["scorer"].strip("`")] = float(row[f"`{name}`"])
    assert written == {name: dict(weights) for name, weights in PROFILES.items()}


def test_the_default_is_named():
    assert f"The default is `{DEFAULT_POLICY}`." in _text()


def test_constants_in_formulas_are_those_of_the_code():
    formulas = {row["scorer"].strip("`"): row["formula"] for row in rows("policies.md", "scorer", "formula")}
    load_weight, foreign_weight = re.findall(r"0\.\d+", formulas["load"])[:2]
    assert float(foreign_weight) == float(load_module.FOREIGN_PART)
    assert float(load_weight) == 1 - float(load_module.FOREIGN_PART)
    cheapest, dearest = sufficiency_module.CHEAPEST, sufficiency_module.DEAREST
    assert f"ln({dearest:g} / {cheapest:g})" in formulas["sufficiency"]


def _text() -> str:
    return Path(DOCS / "policies.md").read_text(encoding="utf-8")
