"""docs/metrics.md has every family of the extender and of the agent, as the code has them."""

from __future__ import annotations

import re

import pytest

from extender.metric_families import EXTENDER_FAMILIES
from tests.docs.agent_families import agent_families
from tests.docs.tables import DOCS

PAGE = (DOCS / "metrics.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \| ([^|]+) \|$", re.MULTILINE)


def written(heading: str) -> list[tuple[str, str, tuple[str, ...], str]]:
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [
        (name, kind, tuple(re.findall(r"`(\w+)`", labels)), words) for name, kind, labels, words in ROW.findall(section)
    ]


def test_the_extenders_families_are_those_of_the_code():
    assert written("Extender") == [(each.name, str(each.kind), each.labels, each.words) for each in EXTENDER_FAMILIES]


def test_the_agents_families_are_those_of_the_code():
    assert written("Agent") == agent_families()


@pytest.mark.parametrize("name", [each[0] for each in agent_families()])
def test_names_of_the_agent_follow_the_rules(name):
    assert re.fullmatch(r"tangram_(gpu|agent|process|booked)_[a-z0-9_]+", name)
    assert not re.search(r"_(mib|ms|percent|mw)(_|$)", name)
