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
