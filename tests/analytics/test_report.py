"""The report's shape, the run's states, what is at risk, and who asks for what is not there."""

from __future__ import annotations

import json
from typing import Any

import pytest
from loading import loaded

from goodput_analytics import AnalyticsError, LedgerError, RunState, Settings, UnknownRun, report, runs
from goodput_analytics.model import Category
from reference.planned import S
from reference.stories import Story, at

SHAPE: dict[str, Any] = {
    "schema": int,
    "run": str,
    "state": str,
    "as_of_ns": int,
    "allocated_gpu_s": float,
    "goodput_ratio": float,
    "at_risk_gpu_s": float,
    "gpu_s": {c.value: float for c in Category},
    "phases_gpu_s": {"startup": {"launch": float, "init": float, "restart": float}, "straggler": {"rank": float}},
    "queue_wait_s": float,
    "attempts": [
        {
            "attempt": int,
            "job": str,
            "world_size": int,
            "start_ns": int,
            "end_ns": int,
            "end_cause": str,
            "resume_step": int,
            "first_step": int,
            "last_step": int,
        }
    ],
    "incidents": [
        {
            "attempt": int,
            "cause": str,
            "last_progress_ns": int,
            "abort_ns": int,
            "detection_s": float,
            "recovered_ns": int,
            "lost_steps": int,
            "hang_gpu_s": float,
            "rework_gpu_s": float,
            "restart_gpu_s": float,
            "suspect_ranks": [int],
        }
    ],
    "stragglers": [
        {"rank": int, "node": str, "loss_gpu_s": float, "slowest_steps": int, "slowdown_ratio": float},
    ],
    "findings": [{"code": str, "gpu_s": float, "says": str, "evidence": str, "next": str}],
    "checkpoints": {
        "count": int,
        "failed": int,
        "mean_blocking_s": float,
        "mean_interval_s": float,
        "mtbf_s": float,
        "young_s": float,
        "daly_s": float,
    },
    "quality": {
        "events": int,
        "duplicates": int,
        "conflicts": int,
        "rejected": {},
        "gaps": int,
        "dropped": int,
        "max_skew_s": float,
        "silent_ranks": [int],
        "sources_without_start": int,
        "missing_steps": int,
        "negative_durations": int,
        "assumed_gpu_s": float,
    },
}
CAN_BE_NULL = {"findings[].gpu_s", "attempts[].resume_step"}


def mismatches(told: Any, shape: Any, path: str = "") -> list[str]:
    if isinstance(shape, dict):
        if not isinstance(told, dict) or set(told) != set(shape):
            return [f"{path}: has {sorted(told)}, should have {sorted(shape)}"]
        return [m for key in shape for m in mismatches(told[key], shape[key], f"{path}.{key}" if path else key)]
    if isinstance(shape, list):
        return [m for one in told for m in mismatches(one, shape[0], f"{path}[]")]
    if told is None and path in CAN_BE_NULL:
        return []
    return [] if type(told) is shape else [f"{path}: {told!r} is no {shape.__name__}"]


def eventful() -> Story:
    """A run in which every list of the report has something."""
    story = Story()
    story.other("scheduler").tell(
        "allocation", at(0), job="job", gpus=4, submit_ns=at(-9), start_ns=at(-1), end_ns=at(200)
    )
    first = story.group(start=0, ranks=3, token="a")
    first.resume(9, None)
    now = 10
    for n in range(1, 31):
        first.step(n, now, now + 1, busy={0: 0.5, 1: 0.75, 2: 0.5})
        now += 1
        if n in (10, 20):
            first.span("checkpoint", now, now + 1, step=n)
            now += 1
    first.stop(43, "exception", ranks=[1])
    first.stop(44, "signal", ranks=[0, 2])
    second = story.group(start=50, ranks=3, token="b", only=[0, 1], world=3)
    second.resume(58, 20)
    second.steps(21, 40, 60)
    second.stop(80, "finished")
    return story


def test_the_report_has_every_key_of_its_contract_and_no_other() -> None:
    with loaded(eventful().events) as con:
        told = json.loads(json.dumps(report(con, "story").as_json(), allow_nan=False))
    assert mismatches(told, SHAPE) == []
    assert all(told[name] for name in ("attempts", "incidents", "stragglers", "findings"))
    assert told["schema"] == 1
    assert told["quality"]["silent_ranks"] == [2]


def test_what_cannot_be_known_is_null_and_not_nought() -> None:
    story = Story()
    only = story.group(start=0, token="a")
    only.steps(1, 5, 10)
    only.stop(15, "finished")
    with loaded(story.events) as con:
        told = report(con, "story").as_json()
    assert told["queue_wait_s"] is None
    assert told["at_risk_gpu_s"] is None
    unknown = {"mean_blocking_s", "mean_interval_s", "mtbf_s", "young_s", "daly_s"}
    assert {key for key, value in told["checkpoints"].items() if value is None} == unknown
    assert told["checkpoints"]["count"] == 0


def test_a_run_that_nobody_knows() -> None:
    with loaded(Story(run="llama-7b", events=[]).group(start=0).pens[0].out) as con:
        with pytest.raises(UnknownRun, match=r"no run named 'lama-7b'.*llama-7b") as error:
            report(con, "lama-7b")
        assert error.value.run == "lama-7b"
        assert error.value.known == ("llama-7b",)
        assert isinstance(error.value, AnalyticsError)
        for launch in ("llama-7b~2", "llama-7b~1", "llama-7b~", "~2"):
            with pytest.raises(UnknownRun):
                report(con, launch)
    with loaded([]) as con, pytest.raises(UnknownRun, match="No run has been loaded yet"):
        report(con, "anything")


def test_a_ledger_that_does_not_balance_is_no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    from goodput_analytics import ledger

    real = ledger.run_sql

    def lose_a_nanosecond(con: Any, name: str, values: Any = None) -> None:
        real(con, name, values)
        if name == "ledger":
            con.execute("UPDATE gp_ledger SET end_ns = end_ns - 1 WHERE category = 'productive'")

    monkeypatch.setattr(ledger, "run_sql", lose_a_nanosecond)
    with loaded(eventful().events) as con, pytest.raises(LedgerError, match="does not balance"):
        report(con, "story")


# -- states ----------------------------------------------------------------------------------------------------------


def training(*, until: float = 30, phase: str | None = None, beat: float | None = None) -> Story:
    """Two ranks that have made twenty steps, from 10 to 30; later a heartbeat in some phase."""
    story = Story()
    only = story.group(start=0, ranks=2, token="a")
    only.steps(1, 20, 10)
    if beat is not None:
        only.tell("heartbeat", beat, step=20, phase=phase or "step")
    return story


def state(story: Story, now: float | None = None, **settings: int) -> RunState:
    with loaded(story.events) as con:
        return report(con, story.run, now_ns=None if now is None else at(now), settings=Settings(**settings)).state


@pytest.mark.parametrize(
    ("now", "expected"), [(30, "running"), (40, "running"), (40.1, "hung"), (630, "hung"), (630.1, "lost")]
)
def test_a_run_that_says_nothing_more(now: float, expected: str) -> None:
    assert state(training(), now) == expected


def test_limits_are_settings() -> None:
    assert state(training(), 40.1, hang_floor_ns=11 * S) == "running"
    assert state(training(), 45, lost_ns=14 * S) == "lost"


def test_the_collectors_clock_alone_can_lose_a_run() -> None:
    """Without it the last event is now, however long ago that was."""
    assert state(training()) == "running"
    assert state(training(beat=5000)) == "hung"
    assert state(training(beat=5000), 5001) == "hung"


def test_paused_is_between_steps_on_every_rank() -> None:
    assert state(training(beat=100, phase="between")) == "paused"
    assert state(training(beat=39, phase="between")) == "running"
    story = training()
    pens = [e["source"] for e in story.events if e["kind"] == "start"]
    for source, phase in zip(pens, ("between", "step"), strict=True):
        story.other(f"{source}-beats").tell("heartbeat", at(100), of=source, step=20, phase=phase)
    assert state(story) == "hung"


@pytest.mark.parametrize(("now", "expected"), [(1800, "running"), (1800.1, "hung")])
def test_without_a_first_step(now: float, expected: str) -> None:
    story = Story()
    only = story.group(start=0, token="a")
    only.tell("heartbeat", 1790, phase="init")
    assert state(story, now) == expected


def ended(reason: str | None, *, exits: bool = False) -> Story:
    story = training()
    for i, event in enumerate([e for e in story.events if e["kind"] == "start"]):
        if exits:
            story.other(f"agent-{i}").tell("exit_observed", at(31), of=event["source"], signal=9)
        else:
            story.events.append(
                {
                    "kind": "stop",
                    "run": "story",
                    "source": event["source"],
                    "seq": 21,
                    "ts_ns": at(31),
                    "reason": reason,
                }
            )
    return story


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("finished", "finished"),
        ("exited", "finished"),
        ("exception", "failed"),
        ("signal", "failed"),
        ("preempted", "failed"),
    ],
)
def test_a_run_that_has_ended_is_not_lost_however_long_ago(reason: str, expected: str) -> None:
    assert state(ended(reason)) == expected
    assert state(ended(reason), 1e6) == expected


def test_a_run_whose_processes_were_seen_to_die_has_failed() -> None:
    assert state(ended(None, exits=True), 1e6) == "failed"


# -- at risk ---------------------------------------------------------------------------------------------------------


def test_at_risk_is_what_was_made_since_the_last_save() -> None:
    story = Story()
    only = story.group(start=0, ranks=2, token="a")
    only.steps(1, 10, 10)
    only.span("checkpoint", 20, 23, step=10)
    only.steps(11, 15, 23)
    with loaded(story.events) as con:
        assert report(con, "story").at_risk_gpu_s == 10
    only.span("checkpoint", 28, 29, step=15)
    with loaded(story.events) as con:
        assert report(con, "story").at_risk_gpu_s == 0
    only.steps(16, 18, 29)
    only.stop(32, "finished")
    with loaded(story.events) as con:
        assert report(con, "story").at_risk_gpu_s == 0


def test_an_event_of_several_steps_is_at_risk_for_those_after_the_save() -> None:
    story = Story()
    only = story.group(start=0, token="a")
    only.step(5, 10, 15, count=5)
    only.step(10, 15, 20, count=5)
    only.tell("durable", 20, step=7, ok=True)
    only.step(15, 20, 25, count=5)
    with loaded(story.events) as con:
        assert report(con, "story").at_risk_gpu_s == 8


# -- the list of runs ------------------------------------------------------------------------------------------------


def test_runs_are_listed_the_one_heard_from_last_first() -> None:
    early, late = Story(run="early"), Story(run="late")
    for story, start in ((late, 1000), (early, 0)):
        only = story.group(start=start, token="a")
        only.steps(1, 10, start + 10)
        only.stop(start + 20, "finished")
        for event in story.events:
            event["source"] = f"{story.run}-{event['source']}"
    with loaded([*early.events, *late.events]) as con:
        told = runs(con)
    assert [(r.run, r.first_event_ns, r.last_event_ns) for r in told] == [
        ("late", at(1001), at(1020)),
        ("early", at(1), at(20)),
    ]
    assert [(r.attempts, r.allocated_gpu_s, r.goodput_ratio) for r in told] == [(1, 20, 0.5)] * 2


def test_a_second_launch_is_listed_as_a_run_of_its_own() -> None:
    story = Story()
    one = story.group(start=0, token="a", job="one")
    two = story.group(start=5, token="b", job="two")
    one.steps(1, 90, 10)
    two.steps(1, 80, 15)
    with loaded(story.events) as con:
        assert sorted(r.run for r in runs(con)) == ["story", "story~2"]
        with pytest.raises(UnknownRun):
            report(con, "story~3")


# -- settings --------------------------------------------------------------------------------------------------------


def test_an_expected_step_makes_the_rest_a_loss() -> None:
    with loaded(training().events) as con:
        told = report(con, "story", settings=Settings(expected_step_ns=S * 3 // 4))
    assert told.gpu_s["straggler"] == 0.25 * 20 * 2
    assert told.phases_gpu_s["straggler"] == {"jitter": 10}
    assert told.gpu_s["productive"] == 30


def test_silence_is_as_long_as_the_settings_say() -> None:
    story = Story()
    story.group(start=0, token="a").steps(1, 20, 10)
    second = story.group(start=60, token="b")
    second.steps(21, 30, 70)
    second.stop(80, "finished")
    with loaded(story.events) as con:
        assert "hang" not in report(con, "story").phases_gpu_s
        told = report(con, "story", settings=Settings(silence_ns=29 * S))
    assert told.phases_gpu_s["hang"] == {"silent": 30}
    assert told.incidents[0].cause == "hang"
