"""Dashboards: generated, complete, and asking only for metrics that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest
import yaml

from extender.metric_families import EXTENDER_FAMILIES
from scripts.dashboards.__main__ import DASHBOARDS, TARGET, render
from tests.docs.agent_families import agent_families

ROOT = Path(__file__).parents[2]
FILES = sorted(TARGET.glob("*.json"))
BOARDS = {path.stem: json.loads(path.read_text()) for path in FILES}
METRIC = re.compile(r"\btangram(?:_[a-z0-9_]+|:[a-z0-9_]+:[a-z0-9_]+)\b")


def panels(board: dict) -> Iterator[dict]:
    yield from (panel for panel in board["panels"] if panel["type"] != "row")


ALL_PANELS = [pytest.param(panel, id=f"{name}: {panel['title']}") for name in BOARDS for panel in panels(BOARDS[name])]


def known_metrics() -> set[str]:
    rules = yaml.safe_load((ROOT / "manifests/alerts/recording.rules.yaml").read_text())["groups"]
    recorded = {rule["record"] for group in rules for rule in group["rules"]}
    exported = {(each.name, str(each.kind)) for each in EXTENDER_FAMILIES}
    exported |= {(name, kind) for name, kind, _, _ in agent_families()}
    return recorded | {f"{name}_bucket" if kind == "histogram" else name for name, kind in exported}


def test_files_are_what_the_generator_writes():
    assert {path.name: path.read_text() for path in FILES} == {f"{each.name}.json": render(each) for each in DASHBOARDS}


def test_there_is_one_for_cluster_node_workload_and_scheduler():
    assert set(BOARDS) == {"tangram-cluster", "tangram-node", "tangram-workload", "tangram-scheduler"}


@pytest.mark.parametrize("panel", ALL_PANELS)
class TestEveryPanel:
    def test_says_what_it_shows_in_which_unit(self, panel):
        assert panel["title"]
        assert panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"][0]["value"] is None

    def test_asks_only_for_metrics_that_exist(self, panel):
        for target in panel["targets"]:
            asked = set(METRIC.findall(target["expr"]))
            assert asked
            assert asked <= known_metrics()

    def test_links_lead_to_dashboards_that_exist(self, panel):
        for link in panel.get("links", ()):
            assert link["url"].removeprefix("/d/").partition("?")[0] in BOARDS


@pytest.mark.parametrize("name", BOARDS)
class TestEveryDashboard:
    def test_panels_do_not_overlap_and_stay_within_24_columns(self, name):
        cells: list[set[tuple[int, int]]] = []
        for panel in BOARDS[name]["panels"]:
            place = panel["gridPos"]
            assert 0 <= place["x"] <= place["x"] + place["w"] <= 24
            xs, ys = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
            cells.append({(x, y) for x in xs for y in ys})
        assert not any(one & other for one, other in combinations(cells, 2))

    def test_ids_are_unique_and_titles_within_a_row_too(self, name):
        ids = [panel["id"] for panel in BOARDS[name]["panels"]]
        assert len(set(ids)) == len(ids)

    def test_variables_that_are_used_are_defined(self, name):
        defined = {each["name"] for each in BOARDS[name]["templating"]["list"]}
        used = {found for panel in panels(BOARDS[name]) for target in panel["targets"]
                for found in re.findall(r"\$([a-z]+)", target["expr"])}  # fmt: skip
        assert used <= defined
        assert used == defined - {"datasource"}


def test_thresholds_links_and_variables_are_used():
    every = [panel for board in BOARDS.values() for panel in panels(board)]
    assert sum(len(panel["fieldConfig"]["defaults"]["thresholds"]["steps"]) > 1 for panel in every) >= 15
    assert sum("links" in panel for panel in every) >= 3
    assert sum(len(board["templating"]["list"]) > 1 for board in BOARDS.values()) == 3
