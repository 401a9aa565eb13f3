#!/usr/bin/env python3
"""Makes goodput.json, the Grafana board, from the table below.

    python deploy/grafana/make_board.py            write it
    python deploy/grafana/make_board.py --check    exit 1 where it is not what this file makes

Only the standard library is needed.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BOARD = Path(__file__).with_name("goodput.json")
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Those of goodput_analytics.colours.
COLOURS = {
    "productive": "#1d7857",
    "startup": "#8985ff",
    "checkpoint": "#5f4fec",
    "rework": "#de7502",
    "hang": "#d93863",
    "straggler": "#955c07",
    "data_wait": "#4f9cc4",
    "evaluation": "#bb8b59",
    "unattributed": "#6d5fa7",
    "idle": "#a0918f",
}


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel.

    Attributes:
        title, says: its name, and what it tells a person.
        unit: Grafana's name of the unit.
        queries: the expressions, each with its legend.
        kind: timeseries, stat, table or bargauge.
        width, height: of 24 columns, in rows.
        stacked: areas on top of one another.
        most: the end of the scale, where there is one.
        instant: only the last value is asked for.
    """

    title: str
    says: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"
    width: int = 12
    height: int = 8
    stacked: bool = False
    most: float | None = None
    instant: bool = False


ROWS: dict[str, tuple[Panel, ...]] = {
    "Fleet": (
        Panel(
            title="Goodput",
            says="Productive over allocated GPU-seconds of all runs, in the window.",
            unit="percentunit",
            queries=(('window:goodput:ratio{window=~"1h|1d|3d"}', "{{window}}"),),
            kind="stat",
            width=6,
            most=1,
        ),
        Panel(
            title="Lost per hour",
            says="GPU-hours that all runs lost in the last hour, evaluation not counted.",
            unit="GPU-h",
            queries=(('sum(run_window:goodput_lost_gpu:hours{window="1h"})', "lost"),),
            kind="stat",
            width=6,
        ),
        Panel(
            title="Runs by state",
            says="How many runs are in each state.",
            unit="short",
            queries=(("sum by (state) (max by (run, state) (goodput_run_state)) > 0", "{{state}}"),),
            kind="stat",
        ),
        Panel(
            title="Goodput over time",
            says="Goodput of all runs over the last hour and the last day.",
            unit="percentunit",
            queries=(('window:goodput:ratio{window=~"1h|1d"}', "{{window}}"),),
            most=1,
        ),
        Panel(
            title="Where the GPU time of the last hour went",
            says="Shares of all allocated GPU time, by category.",
            unit="percentunit",
            queries=(('category_window:goodput_share:ratio{window="1h"}', "{{category}}"),),
            stacked=True,
            most=1,
        ),
        Panel(
            title="Runs that lose most",
            says="GPU-hours lost in the last day, the ten runs that lost most.",
            unit="GPU-h",
            queries=(('topk(10, run_window:goodput_lost_gpu:hours{window="1d"})', "{{run}}"),),
            kind="bargauge",
            instant=True,
        ),
        Panel(
            title="Error budget burn",
            says="Times the loss that the objective allows; 1 uses the budget up exactly.",
            unit="none",
            queries=(('window:goodput_burn:rate{window=~"1h|1d"}', "{{window}}"),),
        ),
    ),
    "Run": (
        Panel(
            title="Goodput of $run",
            says="Productive over allocated GPU-seconds of the run, whole and by window.",
            unit="percentunit",
            queries=(
                ('max by (run) (goodput_ratio{run="$run"})', "whole run"),
                ('run_window:goodput:ratio{run="$run",window=~"5m|1h|1d"}', "{{window}}"),
            ),
            most=1,
        ),
        Panel(
            title="Where its GPU time of the last hour went",
            says="Shares of the run's GPU time, by category.",
            unit="percentunit",
            queries=(('run_category_window:goodput_share:ratio{run="$run",window="1h"}', "{{category}}"),),
            stacked=True,
            most=1,
        ),
        Panel(
            title="State",
            says="The state that the run is in.",
            unit="short",
            queries=(('max by (state) (goodput_run_state{run="$run"}) > 0', "{{state}}"),),
            kind="stat",
            width=6,
        ),
        Panel(
            title="Since it was heard, and since it progressed",
            says="Ages of the last event and of the last progress.",
            unit="s",
            queries=(
                ('time() - max(goodput_last_event_timestamp_seconds{run="$run"})', "last event"),
                ('time() - max(goodput_last_progress_timestamp_seconds{run="$run"})', "last progress"),
            ),
            kind="stat",
            width=6,
        ),
        Panel(
            title="GPUs",
            says="GPUs that the live attempt drives, and ranks of it that never reported.",
            unit="short",
            queries=(
                ('max(goodput_gpus{run="$run"})', "GPUs"),
                ('max(goodput_silent_ranks{run="$run"})', "silent ranks"),
            ),
            kind="stat",
            width=6,
        ),
        Panel(
            title="Queue wait",
            says="From submission to admission, summed over the run's jobs.",
            unit="s",
            queries=(('max(goodput_queue_wait_seconds{run="$run"})', "waited"),),
            kind="stat",
            width=6,
        ),
        Panel(
            title="Steps per second",
            says="How many steps the run computes, those that are thrown away included.",
            unit="cps",
            queries=(('sum(rate(goodput_steps_total{run="$run"}[5m]))', "steps"),),
        ),
        Panel(
            title="Step time",
            says="Median and 95th percentile of the steps of the last ten minutes.",
            unit="s",
            queries=tuple(
                (f'histogram_quantile({q}, sum by (le) (rate(goodput_step_seconds_bucket{{run="$run"}}[10m])))', name)
                for q, name in ((0.5, "median"), (0.95, "95 %"))
            ),
        ),
    ),
    "Losses": (
        Panel(
            title="GPU time by category",
            says="GPU-seconds of the whole run; rollbacks and late events revise them.",
            unit="s",
            queries=(('max by (category) (goodput_gpu_seconds{run="$run"})', "{{category}}"),),
            kind="bargauge",
            instant=True,
        ),
        Panel(
            title="Loss by category over a day",
            says="Shares of the run's GPU time in the day before, losses alone.",
            unit="percentunit",
            queries=(
                (
                    'run_category_window:goodput_share:ratio{run="$run",window="1d",category!~"productive|evaluation"}',
                    "{{category}}",
                ),
            ),
            stacked=True,
        ),
        Panel(
            title="Work at risk",
            says="What the run would lose if it died now, in seconds on all its GPUs.",
            unit="s",
            queries=(
                ('run:goodput_at_risk:seconds{run="$run"}', "at risk"),
                ('max(goodput_checkpoint_interval_seconds{run="$run",kind="daly"})', "advised interval (Daly)"),
            ),
        ),
        Panel(
            title="Time between saves",
            says="The actual mean, and what the run's own failures and saves advise.",
            unit="s",
            queries=(('max by (kind) (goodput_checkpoint_interval_seconds{run="$run"})', "{{kind}}"),),
        ),
        Panel(
            title="Slow ranks",
            says="Lateness over the median rank's, of the ranks that cost most.",
            unit="none",
            queries=(('max by (rank) (goodput_slow_rank_ratio{run="$run"})', "rank {{rank}}"),),
            kind="bargauge",
            instant=True,
        ),
        Panel(
            title="Allocated and at risk",
            says="GPU-hours held so far, and those of them that no checkpoint covers.",
            unit="GPU-h",
            queries=(
                ('max(goodput_allocated_gpu_seconds_total{run="$run"}) / 3600', "allocated"),
                ('max(goodput_at_risk_gpu_seconds{run="$run"}) / 3600', "at risk"),
            ),
        ),
    ),
    "Incidents": (
        Panel(
            title="Restarts",
            says="Attempts that followed another in the hour before, by why that one ended.",
            unit="short",
            queries=(('sum by (cause) (increase(goodput_restarts_total{run="$run"}[1h]))', "{{cause}}"),),
            stacked=True,
        ),
        Panel(
            title="Saves",
            says="Saves in the hour before: durable ones, and those that failed.",
            unit="short",
            queries=(('sum by (result) (increase(goodput_checkpoints_total{run="$run"}[1h]))', "{{result}}"),),
        ),
        Panel(
            title="Since the last durable checkpoint",
            says="Time since a checkpoint became durable.",
            unit="s",
            queries=(('time() - max(goodput_last_durable_checkpoint_timestamp_seconds{run="$run"})', "age"),),
        ),
        Panel(
            title="Alerts",
            says="Alerts that fire or are about to.",
            unit="short",
            queries=(('sum by (alertname, run) (ALERTS{alertname=~"Goodput.*"})', "{{alertname}} {{run}}"),),
            kind="table",
            instant=True,
        ),
    ),
    "Collector": (
        Panel(
            title="Events",
            says="Events that are kept, and those that came again, a second.",
            unit="cps",
            queries=(
                ("sum(rate(goodput_collector_events_total[5m]))", "kept"),
                ("sum(rate(goodput_collector_duplicate_events_total[5m]))", "again"),
                ("sum(rate(goodput_collector_conflicting_events_total[5m]))", "again, with another content"),
                ("sum by (reason) (rate(goodput_collector_rejected_lines_total[5m]))", "rejected: {{reason}}"),
            ),
        ),
        Panel(
            title="Freshness",
            says="Age of the oldest figures of a run at work, and the length of a round.",
            unit="s",
            queries=(
                ("max(goodput_collector_oldest_figures_seconds)", "oldest figures"),
                ("max(goodput_collector_refresh_seconds)", "round"),
            ),
        ),
        Panel(
            title="Runs told of",
            says="Runs in /metrics, those beyond the most, and those that could not be computed.",
            unit="short",
            queries=(
                ("max(goodput_collector_exported_runs)", "told of"),
                ("max(goodput_collector_left_out_runs)", "left out"),
                ("max(goodput_collector_failed_runs)", "failed"),
            ),
        ),
        Panel(
            title="Bytes",
            says="The database, and what waits to be kept.",
            unit="bytes",
            queries=(
                ("max(goodput_collector_database_bytes)", "database"),
                ("max(goodput_collector_waiting_bytes)", "waiting"),
            ),
        ),
    ),
}


def board() -> dict[str, Any]:
    """The board as Grafana reads it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})  # fmt: skip
        y += 1
        x = tallest = 0
        for panel in row:
            if x + panel.width > 24:
                x, y, tallest = 0, y + tallest, 0
            place = {"x": x, "y": y, "w": panel.width, "h": panel.height}
            panels.append({"id": len(panels) + 1, "gridPos": place, **_panel(panel)})
            x, tallest = x + panel.width, max(tallest, panel.height)
        y += tallest
    return {
        "uid": "goodput",
        "title": "Goodput",
        "description": "Where the GPU time of training runs goes. Made by make_board.py: change that.",
        "tags": ["goodput", "gpu", "training"],
        "schemaVersion": 38,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-24h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [
            {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
            {"name": "run", "type": "query", "label": "Run", "datasource": SOURCE, "refresh": 2, "sort": 1,
             "query": {"query": "label_values(goodput_run_state, run)", "refId": "run"}},
        ]},
        "panels": panels,
    }  # fmt: skip


def _panel(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit if panel.unit != "GPU-h" else "suffix: GPU-h", "min": 0}
    if panel.most is not None:
        defaults["max"] = panel.most
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "fillOpacity": 60 if panel.stacked else 0,
            "stacking": {"mode": "normal" if panel.stacked else "none"},
            "showPoints": "never",
        }
    colours = [
        {"matcher": {"id": "byName", "options": name},
         "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}]}
        for name, colour in COLOURS.items() if any("{{category}}" in legend for _, legend in panel.queries)
    ]  # fmt: skip
    options: dict[str, Any] = {}
    if panel.kind in ("stat", "bargauge"):
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "orientation": "horizontal"}
        if panel.kind == "stat":
            options |= {"textMode": "value_and_name", "colorMode": "none", "orientation": "auto"}
    targets = []
    for index, (expr, legend) in enumerate(panel.queries):
        target = {"refId": chr(65 + index), "datasource": SOURCE, "expr": expr, "legendFormat": legend}
        if panel.instant:
            target |= {"instant": True, "range": False}
        if panel.kind == "table":
            target |= {"format": "table"}
        targets.append(target)
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.says,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": colours},
        "options": options,
        "targets": targets,
    }


def text() -> str:
    """The file."""
    return json.dumps(board(), indent=1) + "\n"


def main(arguments: list[str]) -> int:
    """Writes the board, or says whether it is what this file makes."""
    if arguments == ["--check"]:
        if not BOARD.exists() or BOARD.read_text(encoding="utf-8") != text():
            print(f"{BOARD.name} is not what make_board.py makes: run it again.", file=sys.stderr)
            return 1
        return 0
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    BOARD.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
