"""Hours in which nothing is wrong, or not yet: made lives through the real collector and the real rules, minute by
minute, and no alert. And as many that are wrong, so that the silence says something."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from compressed import Life, fired, series_of
from exposed import key
from made_events import T0_NS, S

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is missing: apt-get install prometheus"
)


def at_once(event: dict[str, Any]) -> float:
    """It arrives when it happens."""
    return float(event["ts_ns"] - T0_NS) / S


def healthy() -> Life:
    """Steps, a save of 20 s each five minutes, an evaluation of two minutes each quarter of an hour."""
    life = Life("healthy")
    life.wait(30)
    life.start()
    while life.now_s < 3600:
        life.steps(70)
        life.span("checkpoint", 20)
        if life.step % 210 == 0:
            life.span("evaluation", 120)
    return life


def long_first_spans() -> Life:
    """Its first save takes eight minutes, its first evaluation 20; nobody could know."""
    life = Life("long")
    life.start()
    life.steps(100)
    life.span("checkpoint", 480)
    life.steps(100)
    life.span("evaluation", 1200)
    while life.now_s < 3600:
        life.steps(50)
        life.span("checkpoint", 480)
    return life


def planned() -> Life:
    """It is preempted, gets its nodes back after 15 minutes, and ends with a last save of five minutes, where the one
    before took two."""
    life = Life("planned")
    life.start("slurm:1.0")
    life.steps(60)
    life.span("checkpoint", 120)
    life.steps(60)
    life.stop("preempted")
    life.now_s += 900
    life.start("slurm:1.1")
    life.wait(60, "init")
    life.steps(120)
    life.span("checkpoint", 300)
    life.stop("finished")
    return life


def slow_start() -> Life:
    """20 minutes until its first step is done, and then a first step that compiles for 10."""
    life = Life("slow")
    life.start()
    life.wait(1200, "init")
    life.steps(1, 600)
    while life.now_s < 3600:
        life.steps(50)
    return life


def undeclared() -> Life:
    """It tells its steps alone: every 20th waits 16 s for its loader, and now and then it saves for three minutes
    between two steps, of which it says nothing."""
    life = Life("undeclared")
    life.start()
    while life.now_s < 3600:
        for _ in range(7):
            life.steps(19)
            life.steps(1, 16)
        life.wait(180)
    return life


def test_a_hang_fires_and_a_save_of_eight_minutes_does_not(tmp_path: Path) -> None:
    """The short form: nine minutes, in which one run stands still in a step and another in its first save."""
    hangs, saves = Life("hangs"), Life("saves")
    for life in (hangs, saves):
        life.start()
        life.steps(30)
    hangs.steps(1, 1200)
    saves.span("checkpoint", 480)
    series = series_of(tmp_path, [hangs, saves], 9, at_once)
    assert fired(tmp_path, series, 9) == {"GoodputRunHung": [5, 6, 7, 8, 9]}
    for run in ("hangs", "saves"):
        assert series[key("goodput_run_state", run=run, state="hung")][4:] == ["1.0"] * 6, run


@pytest.mark.soak
def test_an_hour_of_all_that_is_legal_wakes_nobody(tmp_path: Path) -> None:
    """Three minutes. A healthy run, long first saves, a planned end and a requeue, a slow start, undeclared saves."""
    series = series_of(
        tmp_path, [healthy(), long_first_spans(), planned(), slow_start(), undeclared()], 60, at_once
    )  # fmt: skip
    # What the hour is about did happen, in the collector's own words.
    for run, state in (("long", "hung"), ("planned", "finished"), ("undeclared", "paused")):
        assert "1.0" in series[key("goodput_run_state", run=run, state=state)], (run, state)
    assert "1.0" in series[key("goodput_first_span", run="long")]
    assert series[key("goodput_restarts_total", run="planned", cause="preempted")][-1] == "1.0"
    assert fired(tmp_path, series, 60) == {}


@pytest.mark.soak
def test_a_backlog_after_an_outage_wakes_nobody(tmp_path: Path) -> None:
    """A minute. The collector is away for 40 minutes, in which runs crash; then all comes in, five times as fast."""
    lives = []
    for number in range(3):
        life = Life(f"r{number}")
        life.start()
        life.steps(150 + number)
        for _ in range(3):
            life.stop("exception")
            life.now_s += 20
            life.start()
            life.wait(20, "init")
            life.steps(60)
        while life.now_s < 4200:
            life.steps(50)
        lives.append(life)

    def arrives(event: dict[str, Any]) -> float:
        told_s = at_once(event)
        came_s = 3000 + (told_s - 600) / 5
        return max(told_s, came_s) if told_s > 600 else told_s

    series = series_of(tmp_path, lives, 70, arrives, scraped=lambda minute: minute <= 10 or minute >= 50)
    restarts = series[key("goodput_restarts_total", run="r0", cause="crash")]
    assert restarts[10] == "0.0" and restarts[-1] == "3.0"
    assert "1.0" in series[key("goodput_run_state", run="r0", state="lost")]
    assert fired(tmp_path, series, 70) == {}
