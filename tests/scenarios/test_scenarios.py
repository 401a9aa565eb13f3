"""The scenarios, from an event file through `goodput ingest` to `goodput report --json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from catalogue import SCENARIOS
from judging import CATEGORIES, faults
from scenario import Right, Scenario

from goodput.cli import main
from reference import reference_report
from reference.lives import to_lines

each = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)


@pytest.fixture(autouse=True)
def no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOODPUT_DB", raising=False)


def reported(scenario: Scenario, folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    file, db = folder / "run.jsonl", str(folder / "run.duckdb")
    file.write_text("".join(f"{line}\n" for line in to_lines(scenario.events())))
    assert main(["ingest", str(file), "--db", db]) == 0
    capsys.readouterr()
    assert main(["report", scenario.run, "--db", db, "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


@each
def test_the_report_says_what_is_right(scenario: Scenario, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert faults(reported(scenario, tmp_path, capsys), scenario.right) == []


@each
def test_the_reference_says_the_same(scenario: Scenario) -> None:
    """Figures worked out by hand can be wrong as well."""
    told = reference_report(scenario.events(), scenario.run)
    told["findings"] = [{"code": code} for code in scenario.right.findings]
    assert faults(told, scenario.right) == []


def test_every_category_and_every_kind_of_incident_has_a_scenario() -> None:
    assert {c for s in SCENARIOS for c, gpu_s in s.right.gpu_s.items() if gpu_s} == set(CATEGORIES)
    causes = {row["cause"] for s in SCENARIOS for row in s.right.incidents}
    assert causes == {"crash", "hang", "preempted", "lost", "rollback"}
    assert {s.right.state for s in SCENARIOS} == {"running", "hung", "paused", "finished", "failed"}


def test_a_wrong_figure_is_noticed() -> None:
    report = reference_report(SCENARIOS[0].events(), SCENARIOS[0].run)
    report["gpu_s"]["hang"] += 1e-3
    wrong = faults(report, Right(state="running", gpu_s=SCENARIOS[0].right.gpu_s))
    assert [fault.partition(":")[0] for fault in wrong] == ["state", "gpu_s", "number of incidents"]
