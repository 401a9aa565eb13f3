"""Values that the event contract refuses: told of once, counted, and never written."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from recorder_made import make
from recorder_reading import done_steps, of_rank, read_events
from recorder_scripts import run_script

import goodput

HUGE = 2**53


def start_of(spool: Path) -> dict[str, Any]:
    (start,) = [event for event in read_events(spool) if event["kind"] == "start"]
    return start


@pytest.mark.parametrize("how", [(-1, 1), (HUGE, 1), (5, 0), (5, -3), (5, HUGE), (10**5000, 1)])
def test_an_impossible_step_is_dropped_and_the_next_is_kept(
    spool: Path, swallowed: list[str], how: tuple[int, int]
) -> None:
    made = make(spool)
    for _ in range(3):
        made.step(how[0], ms=1, count=how[1])
    made.rec.begin_step(*how)
    made.rec.end_step()
    made.step(1, ms=1000)
    made.rec.finish()
    events = of_rank(read_events(spool))
    assert done_steps(events) == [1]
    dropped = [(event["reason"], event["count"]) for event in events if event["kind"] == "dropped"]
    assert dropped == [("step could not be begun", 4)]
    assert set(swallowed) == {"step could not be begun"}
    swallowed.clear()


def test_an_impossible_step_is_told_of_once(
    spool: Path, swallowed: list[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goodput.guard._logged", set())
    made = make(spool)
    with caplog.at_level(logging.WARNING, "goodput"):
        for _ in range(3):
            made.step(-1, ms=1)
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [
        "goodput: step could not be begun: ValueError: a step's number is 0 or more, and it stands for 1 or more"
    ]
    swallowed.clear()


def test_the_step_before_the_first_means_that_nothing_was_loaded(spool: Path, swallowed: list[str]) -> None:
    made = make(spool)
    made.rec.resumed(-1)
    made.rec.resumed(0)
    for step in (-2, HUGE):
        made.rec.resumed(step)
    made.rec.finish()
    events = of_rank(read_events(spool))
    assert [event["step"] for event in events if event["kind"] == "resume"] == [None, 0]
    assert [event["count"] for event in events if event["kind"] == "dropped"] == [2]
    assert swallowed == ["resume could not be recorded"] * 2
    swallowed.clear()


def test_checkpoints_of_impossible_steps(spool: Path, swallowed: list[str]) -> None:
    made = make(spool)
    made.rec.durable(HUGE)
    made.rec.durable(-1)
    with made.rec.checkpoint(-1), made.rec.evaluation(HUGE), made.rec.checkpoint(3):
        pass
    made.rec.finish()
    events = of_rank(read_events(spool))
    assert not [event for event in events if event["kind"] == "durable"]
    assert [event["count"] for event in events if event["kind"] == "dropped"] == [2], "a span's time is kept"
    spans = [(event["kind"], event["span"], event.get("step")) for event in events if "span" in event]
    assert spans == [
        ("begin", "checkpoint", None),
        ("begin", "evaluation", None),
        ("begin", "checkpoint", 3),
        ("end", "checkpoint", 3),
        ("end", "evaluation", None),
        ("end", "checkpoint", None),
    ]
    swallowed.clear()


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __fspath__(self) -> str:
        raise RuntimeError("no path")

    def __bool__(self) -> bool:
        raise RuntimeError("no truth")


@pytest.mark.parametrize(
    "argument",
    [
        {"devices": -1},
        {"devices": 0},
        {"devices": 2**40},
        {"devices": 10**400},
        {"devices": float("inf")},
        {"devices": "many"},
        {"devices": Unspeakable()},
        {"labels": "team=nlp"},
        {"labels": {"team": Unspeakable()}},
        {"labels": Unspeakable()},
        {"meta": [1, 2]},
        {"group": Unspeakable()},
        {"job": Unspeakable()},
        {"spool": 7},
        {"spool": Unspeakable()},
    ],
)
def test_a_bad_argument_is_left_out_and_loses_no_source(
    spool: Path, swallowed: list[str], argument: dict[str, Any]
) -> None:
    rec = goodput.start(run="r", **argument)
    with rec.step(1):
        pass
    rec.finish()
    start = start_of(spool)
    assert (start["devices"], start["labels"], "group" in start) == (1, {}, False)
    assert start["job"].startswith("local:")
    assert done_steps(read_events(spool)) == [1]
    (name,) = argument
    assert len(swallowed) == 1 and f"start({name}=" in swallowed[0]
    swallowed.clear()


def test_long_texts_do_not_cost_the_start(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = "x" * 100_000
    monkeypatch.setenv("SLURMD_NODENAME", long)
    goodput.start(run=long, job=long, group=long, labels={"team": long}, meta={"note": long}).finish()
    start = start_of(spool)
    assert (len(start["run"]), len(start["job"]), len(start["group"]), len(start["node"])) == (200, 1000, 1000, 1000)


@pytest.mark.parametrize("value", ["-1", "0", "1e6", "x", "inf"])
def test_impossible_devices_in_the_environment(spool: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("GOODPUT_DEVICES", value)
    goodput.start(run="r").finish()
    assert start_of(spool)["devices"] == 1


def test_devices_of_the_call_win_over_the_environment(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOODPUT_DEVICES", "8")
    goodput.start(run="r").finish()
    assert start_of(spool)["devices"] == 8
    goodput.start(run="r", spool=spool / "two", devices=4).finish()
    assert start_of(spool / "two")["devices"] == 4


@pytest.mark.parametrize(
    ("name", "value"),
    [("LOCAL_RANK", "-1"), ("TORCHELASTIC_RESTART_COUNT", "-1"), ("LOCAL_RANK", str(10**30)), ("RANK", str(10**30))],
)
def test_impossible_numbers_of_a_launcher(spool: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    for variable, number in (("RANK", "0"), ("WORLD_SIZE", "1"), ("TORCHELASTIC_RUN_ID", "a"), (name, value)):
        monkeypatch.setenv(variable, number)
    goodput.start(run="r").finish()
    start = start_of(spool)
    assert (start["rank"], start["local_rank"], start["world_size"], start["restart_count"]) == (0, 0, 1, 0)


def test_the_job_may_be_named(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("GOODPUT_JOB", " overnight ")
    goodput.start(run="r").finish()
    assert start_of(spool)["job"] == "overnight"
    goodput.start(run="r", spool=spool / "two", job="mine").finish()
    assert start_of(spool / "two")["job"] == "mine"


NAMELESS = """
rec = goodput.start()
rec.finish()
print(type(goodput.start(run=" ")).__name__)
"""


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, 1),
        ({"RANK": "0", "WORLD_SIZE": "2"}, 1),
        ({"RANK": "1", "WORLD_SIZE": "2"}, 0),
        ({"GOODPUT_DISABLED": "1"}, 0),
    ],
)
def test_a_run_without_a_name_is_not_silent(spool: Path, variables: dict[str, str], said: int) -> None:
    done = run_script(NAMELESS, spool, **variables)
    assert (done.returncode, done.stdout) == (0, "NoopRecorder\n")
    lines = done.stderr.splitlines()
    assert len(lines) == said, "once, by rank 0"
    for line in lines:
        assert line.startswith("goodput: nothing is recorded") and 'run="..."' in line and "GOODPUT_RUN" in line
