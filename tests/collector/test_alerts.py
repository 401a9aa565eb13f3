"""The alert rules: what promtool says of them, and that each has a test that fires, a page, and metrics that exist."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import landing_cases
import pytest
import yaml
from exposed import Key, Watched
from made_events import T0_NS, S

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


@needs_promtool
@pytest.mark.soak
def test_an_undeclared_save_and_a_slow_loader_wake_nobody_in_an_hour(tmp_path: Path) -> None:
    """What /metrics says through an hour of compressed time, given to the rules as their input: a script tells steps
    and nothing else, saves for three minutes now and then, and waits for its loader."""
    clock_ns = [T0_NS]
    watched = Watched(tmp_path, lambda: clock_ns[0])
    events = ranks("plain")
    series: dict[Key, list[str]] = {}
    minutes = 60
    for minute in range(minutes + 1):
        clock_ns[0] = T0_NS + minute * 60 * S
        lines = b""
        while events and events[0]["ts_ns"] <= clock_ns[0]:
            lines += landing_cases.line(events.pop(0)) + b"\n"
        if lines:
            watched.send("plain", lines)
        _, values = watched.scrape()
        for one, value in values.items():
            at = value - T0_NS / S if one[0].endswith("timestamp_seconds") else value
            series.setdefault(one, ["_"] * minute).append(repr(at))
        for values_told in series.values():
            values_told += ["_"] * (minute + 1 - len(values_told))
    watched.close()
    state = ("goodput_run_state", frozenset({("run", "plain"), ("state", "paused")}))
    assert "1.0" in series[state], "nothing was paused: the test looks at nothing"

    def written(one: Key) -> str:
        inside = ",".join(f'{label}="{text}"' for label, text in sorted(one[1]))
        return f"{one[0]}{{{inside}}}"

    checks = [
        {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": []}
        for minute in range(minutes + 1)
        for name in ALERTS
        if not name.startswith("GoodputCollector")  # of which the hour has no scrape
    ]
    test = {
        "rule_files": [str(PROMETHEUS / "goodput.rules.yml")],
        "evaluation_interval": "30s",
        "tests": [{
            "interval": "1m",
            "input_series": [{"series": written(one), "values": " ".join(values)} for one, values in series.items()],
            "alert_rule_test": checks,
        }],
    }  # fmt: skip
    (tmp_path / "hour.yml").write_text(yaml.safe_dump(test))
    tool("promtool", "test", "rules", str(tmp_path / "hour.yml"))


def ranks(run: str) -> list[dict[str, Any]]:
    """An hour of two ranks in order of time: steps of four seconds, every 20th of 16 s for its input, and now and then
    three minutes between two steps, of which nothing is said but by heartbeats."""
    events: list[dict[str, Any]] = []
    for rank in range(2):
        seq = 0

        def add(kind: str, at_s: float, source: str = f"{run}-{rank}", **fields: Any) -> None:
            nonlocal seq
            head = {"kind": kind, "run": run, "source": source, "seq": seq, "ts_ns": T0_NS + round(at_s * S)}
            events.append(head | fields)
            seq += 1

        add("start", 0, v=1, job=f"local:{run}:1", restart_count=0, rank=rank, local_rank=rank, world_size=2, node="n",
            pid=1, devices=1, process_start_ns=T0_NS, attempt_token=run)  # fmt: skip
        now_s, step, beat_s = 5.0, 0, 0.0
        while now_s < 3600:
            took_s = 16.0 if step % 20 == 19 else 4.0
            pause_s = 180.0 if step and step % 150 == 0 else 0.0
            while beat_s + 10 < now_s + pause_s + took_s:
                beat_s += 10
                phase = "between" if beat_s < now_s + pause_s else "step"
                add("heartbeat", beat_s, step=step, phase=phase, phase_since_ns=T0_NS + round(now_s * S))
            now_s += pause_s
            step += 1
            add("step", now_s + took_s, step=step, start_ns=T0_NS + round(now_s * S),
                end_ns=T0_NS + round((now_s + took_s) * S))  # fmt: skip
            now_s += took_s
    return sorted(events, key=lambda one: one["ts_ns"])
