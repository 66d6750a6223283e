"""Recording and alert rules: checked by promtool, each alert shown firing and not, each with a runbook entry."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.prometheus.binaries import promtool

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "manifests/alerts/alerts.rules.yaml"
RECORDING = ROOT / "manifests/alerts/recording.rules.yaml"
CASES = Path(__file__).parent / "alerts_test.yaml"
SEVERITIES = {"critical", "warning", "info"}


def rules_of(path: Path) -> Iterator[dict]:
    for group in yaml.safe_load(path.read_text())["groups"]:
        yield from group["rules"]


ALERT_RULES = {rule["alert"]: rule for rule in rules_of(ALERTS)}
RUNBOOK = (ROOT / "docs/runbook.md").read_text(encoding="utf-8")


def run(*arguments: str) -> str:
    done = subprocess.run([promtool(), *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_the_rules():
    assert "SUCCESS" in run("check", "rules", str(ALERTS), str(RECORDING))


@pytest.mark.slow
def test_every_alert_fires_when_it_should_and_not_before():
    run("test", "rules", str(CASES))


def test_a_rule_that_never_fires_is_noticed(tmp_path):
    """The cases would not pass whatever the rules say."""
    broken = ALERTS.read_text().replace("tangram_gpu_temperature_celsius > 85", "tangram_gpu_temperature_celsius > 850")
    (tmp_path / "alerts.yaml").write_text(broken)
    cases = yaml.safe_load(CASES.read_text())
    cases["rule_files"] = [str(RECORDING), str(tmp_path / "alerts.yaml")]
    cases["tests"] = [each for each in cases["tests"] if each["name"] == "TangramGpuHot"]
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump(cases))
    done = subprocess.run(
        [promtool(), "test", "rules", str(tmp_path / "cases.yaml")], capture_output=True, timeout=60, check=False
    )
    assert done.returncode != 0


@pytest.mark.parametrize("alert", ALERT_RULES)
class TestEveryAlert:
    def test_has_a_case_where_it_fires_and_one_where_it_does_not(self, alert):
        case = next(each for each in yaml.safe_load(CASES.read_text())["tests"] if each["name"] == alert)
        checks = [each for each in case["promql_expr_test"] if f'alertname="{alert}"' in each["expr"]]
        assert {bool(each.get("exp_samples")) for each in checks} == {True, False}

    def test_says_how_bad_it_is_what_it_is_and_what_to_do(self, alert):
        rule = ALERT_RULES[alert]
        assert rule["labels"]["severity"] in SEVERITIES
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"].endswith(".")

    def test_links_to_an_entry_of_the_runbook_that_is_complete(self, alert):
        page, _, anchor = ALERT_RULES[alert]["annotations"]["runbook_url"].partition("#")
        assert (ROOT / page).is_file()
        assert anchor == alert.lower()
        entry = RUNBOOK.split(f"\n## {alert}\n")[1].split("\n## ")[0]
        for part in ("What it means", "Look at", "Do"):
            assert re.search(rf"\*\*{part}\*\*: \S+", entry), part
        wait = ALERT_RULES[alert].get("for")
        assert (f"after {wait}." if wait else "at once.") in entry


def test_the_runbook_has_no_entry_without_an_alert():
    assert re.findall(r"^## (\w+)$", RUNBOOK, re.MULTILINE) == list(ALERT_RULES)


def test_recorded_names_have_level_and_metric():
    for rule in rules_of(RECORDING):
        assert re.fullmatch(r"tangram:[a-z0-9_]+:[a-z0-9_]+", rule["record"])
