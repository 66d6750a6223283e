"""docs/agent.md keeps up with the code."""

import re
from pathlib import Path

import pytest

from node_agent.health_rules import XID_RULES
from node_agent.report import Health, NodeState
from node_agent.settings import Settings

PAGE = (Path(__file__).parents[2] / "docs" / "agent.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", Settings.__struct_fields__)
def test_every_setting_is_described(name):
    assert f"`{name.upper()}`" in PAGE


@pytest.mark.parametrize("xid", XID_RULES)
def test_every_xid_of_the_table_is_described(xid):
    assert re.search(rf"\b{xid}\b", PAGE)


@pytest.mark.parametrize("state", [state for state in (*Health, *NodeState) if state not in {"ok", "healthy"}])
def test_every_state_is_described(state):
    assert f"`{state}`" in PAGE


@pytest.mark.parametrize(("file", "name"), sorted(set(re.findall(r"`((?:nvml|node_agent)/\w+\.py)::(\w+)`", PAGE))))
def test_every_test_that_the_page_names_exists(file, name):
    text = (Path(__file__).parents[1] / file).read_text(encoding="utf-8")
    assert re.search(rf"def {name}\(", text)


def test_every_failure_of_others_names_a_test():
    table = PAGE.partition("## What happened to others")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 40
    assert [line for line in rows if ".py::test_" not in line] == []
