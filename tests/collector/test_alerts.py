"""The alert rules: what promtool says of them, and that each has a test that fires, a page, and metrics that exist."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from goodput_collector.exposition import Kind
from goodput_collector.metrics import FAMILIES

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES: dict[str, Any] = yaml.safe_load((PROMETHEUS / "goodput.rules.yml").read_text())
EACH = [rule for group in RULES["groups"] for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in EACH if "alert" in rule}
NAME = re.compile(r"\b(?:goodput_[a-z_0-9]+|[a-z_]+:goodput_?[a-z_]*:[a-z_]+|goodput:threshold:[a-z_]+)\b")

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is missing: apt-get install prometheus"
)
needs_amtool = pytest.mark.skipif(
    shutil.which("amtool") is None, reason="amtool is missing: apt-get install prometheus-alertmanager"
)


def exposed() -> set[str]:
    """The names under which samples stand."""
    histograms = [one.name for one in FAMILIES if one.kind is Kind.HISTOGRAM]
    parts = {f"{name}_{part}" for name in histograms for part in ("bucket", "sum", "count")}
    return {one.sample_name for one in FAMILIES} | parts


def tool(*command: str) -> None:
    done = subprocess.run(command, cwd=PROMETHEUS, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_promtool_takes_the_rules_and_the_example() -> None:
    tool("promtool", "check", "rules", "--lint-fatal", "goodput.rules.yml")
    tool("promtool", "check", "config", "prometheus.yml")


@needs_promtool
def test_every_alert_is_silent_first_and_then_exact() -> None:
    tool("promtool", "test", "rules", "goodput.test.yml")


def test_every_alert_has_a_test_that_is_silent_and_one_that_fires() -> None:
    told = yaml.safe_load((PROMETHEUS / "goodput.test.yml").read_text())["tests"]
    checks = [check for test in told for check in test["alert_rule_test"]]
    assert {check["alertname"] for check in checks if not check["exp_alerts"]} >= ALERTS.keys()
    assert {check["alertname"] for check in checks if check["exp_alerts"]} == ALERTS.keys()


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_says_what_is_lost_and_where_to_read_on(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in ("critical", "warning")
    notes = rule["annotations"]
    assert {"summary", "description", "lost", "runbook_url", "page_url"} == notes.keys()
    assert notes["runbook_url"].endswith(f"RUNBOOK.md#{name.lower()}")


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_has_a_page_with_a_body(name: str) -> None:
    text = (ROOT / "docs" / "RUNBOOK.md").read_text()
    body = re.search(rf"^### {name}\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    assert body, name
    for part in ("Meaning", "Look", "Likely causes", "First action", "False alarm", "To silence"):
        found = re.search(rf"\*\*{part}\.\*\* (.+)", body[1])
        assert found and len(found[1]) > 10, (name, part)


@pytest.mark.parametrize("name", ALERTS)
def test_the_link_of_every_alert_leads_to_its_entry(name: str) -> None:
    """As GitHub and most others make anchors of headings: in lower case, without punctuation, spaces as hyphens."""
    address, _, anchor = ALERTS[name]["annotations"]["runbook_url"].partition("#")
    page = ROOT / "docs" / address.removeprefix("{{ $externalLabels.goodput_docs }}/")
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    anchors = [re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings]
    assert anchors.count(anchor) == 1 and headings[anchors.index(anchor)] == name


def test_the_runbook_asks_for_nothing_that_a_held_database_refuses() -> None:
    entries = (ROOT / "docs" / "RUNBOOK.md").read_text().partition("\n## ")[2]
    assert not re.findall(r"`goodput (?:report|advise|ingest|export)\b", entries)


def test_no_page_is_of_an_alert_that_is_gone() -> None:
    assert set(re.findall(r"^### (\w+)$", (ROOT / "docs" / "RUNBOOK.md").read_text(), re.MULTILINE)) == ALERTS.keys()


def test_rules_use_only_metrics_that_are_there() -> None:
    records = {rule["record"] for rule in EACH if "record" in rule}
    assert len(records) == len([rule for rule in EACH if "record" in rule])
    used: set[str] = set()
    for rule in EACH:
        used |= set(NAME.findall(rule["expr"]))
    assert used <= exposed() | records, used - exposed() - records
    thresholds = {name for name in records if name.startswith("goodput:threshold:")}
    assert thresholds <= used, thresholds - used


def test_pages_use_only_metrics_that_are_there() -> None:
    records = {rule["record"] for rule in EACH if "record" in rule}
    quoted = " ".join(re.findall(r"`([^`]+)`", (ROOT / "docs" / "RUNBOOK.md").read_text()))
    assert set(NAME.findall(quoted)) <= exposed() | records


@needs_amtool
def test_alertmanager_takes_the_example() -> None:
    tool("amtool", "check-config", "alertmanager.yml")


def test_inhibition_names_alerts_that_are_there_and_hides_no_hang() -> None:
    config = yaml.safe_load((PROMETHEUS / "alertmanager.yml").read_text())
    assert config["route"]["group_by"] == ["run"]
    hidden: dict[str, set[str]] = {}
    for rule in config["inhibit_rules"]:
        (source,), (target,) = rule["source_matchers"], rule["target_matchers"]
        sources, targets = (matched(one) for one in (source, target))
        assert sources and targets and not sources & targets
        for one in sources:
            hidden.setdefault(one, set()).update(targets)
    for pattern in re.findall(r"Goodput\w+(?:\.\*)?", (PROMETHEUS / "alertmanager.yml").read_text()):
        assert any(re.fullmatch(pattern, name) for name in ALERTS), pattern
    assert {"GoodputSloBurnFast", "GoodputCheckpointOverdue"} <= hidden["GoodputRunHung"]
    assert not any("GoodputRunHung" in targets for targets in hidden.values())


def matched(matcher: str) -> set[str]:
    pattern = matcher.split("=", 1)[1].lstrip("~ ").strip('"')
    return {name for name in ALERTS if re.fullmatch(pattern, name)}
