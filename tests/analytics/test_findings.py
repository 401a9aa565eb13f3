"""What a person is told: each finding where it should be and not otherwise, with the right numbers in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from loading import loaded

from goodput_analytics import Category, Checkpoints, Finding, Incident, Quality, Straggler, report
from goodput_analytics.findings import Evidence, find, hours, span
from goodput_analytics.step_changes import StepChange
from reference.stories import Story

NO_SAVES = Checkpoints(
    count=0, failed=0, mean_blocking_s=None, mean_interval_s=None, mtbf_s=None, young_s=None, daly_s=None
)
GOOD = Quality(
    events=100,
    duplicates=0,
    conflicts=0,
    rejected={},
    gaps=0,
    dropped=0,
    max_skew_s=0.0,
    silent_ranks=(),
    sources_without_start=0,
    missing_steps=0,
    negative_durations=0,
    assumed_gpu_s=0.0,
)
CRASH = Incident(
    attempt=0,
    cause="crash",
    last_progress_ns=0,
    abort_ns=0,
    detection_s=1.0,
    recovered_ns=None,
    lost_steps=30,
    hang_gpu_s=0.0,
    rework_gpu_s=0.0,
    restart_gpu_s=0.0,
    suspect_ranks=(),
)


def evidence(lost: dict[str, float] | None = None, **more: Any) -> Evidence:
    """A run of a million GPU-seconds of which 600,000 were productive, unless something else is said."""
    gpu_s = {c.value: 0.0 for c in Category} | {"productive": 600_000.0} | (lost or {})
    fields: dict[str, Any] = {
        "allocated_gpu_s": sum(gpu_s.values()),
        "gpu_s": gpu_s,
        "phases_gpu_s": {},
        "incidents": (),
        "checkpoints": NO_SAVES,
        "stragglers": (),
        "quality": GOOD,
        "launches": 1,
        "slowdown": None,
        "long_spans": (),
    }
    return Evidence(**fields | more)


def told(e: Evidence) -> dict[str, Finding]:
    found = find(e)
    assert len({f.code for f in found}) == len(found)
    for finding in found:
        assert finding.says.endswith(".")
        assert finding.evidence.endswith(".")
        assert finding.next.endswith(".")
    return {f.code: f for f in found}


def test_of_a_flawless_run_nothing_is_said() -> None:
    assert find(evidence()) == ()
    assert find(evidence({"evaluation": 400_000.0})) == ()


@pytest.mark.parametrize(
    ("category", "code"),
    [
        ("rework", "rework"),
        ("hang", "hang"),
        ("startup", "startup"),
        ("straggler", "straggler"),
        ("data_wait", "data_wait"),
        ("unattributed", "unattributed"),
        ("idle", "idle"),
    ],
)
def test_a_loss_has_its_finding_and_no_other(category: str, code: str) -> None:
    found = told(evidence({category: 400_000.0}))
    assert set(found) == {code}
    assert found[code].gpu_s == 400_000
    assert found[code].says.startswith("100 % of the loss")
    assert "111.1 GPU-hours" in found[code].says


@pytest.mark.parametrize("category", [c.value for c in Category if c not in ("productive", "evaluation")])
def test_what_is_below_a_hundredth_is_not_worth_a_sentence(category: str) -> None:
    assert find(evidence({category: 6_000.0})) == ()
    assert set(told(evidence({category: 6_100.0}))) == {category}


def test_the_largest_loss_comes_first_and_what_has_no_figure_last() -> None:
    e = evidence({"hang": 30_000.0, "rework": 50_000.0, "startup": 40_000.0}, quality=replace(GOOD, gaps=1))
    assert [f.code for f in find(e)] == ["rework", "startup", "hang", "data_quality"]
    # Loss is all but productive and evaluation.
    assert told(e)["rework"].says.startswith("42 % of the loss")


def test_rework_with_saves_too_far_apart_says_what_the_advised_interval_would_have_kept() -> None:
    saves = replace(NO_SAVES, count=9, mean_blocking_s=60.0, mean_interval_s=7200.0, mtbf_s=9e3, daly_s=1800.0)
    finding = told(evidence({"rework": 360_000.0}, checkpoints=saves))["rework"]
    assert finding.evidence == "Saves are 2.0 h apart; the advised interval is 30 min."
    assert finding.next == "Save every 30 min: it would have kept about 75.0 GPU-hours."


def test_rework_without_saves_and_with_saves_that_are_close() -> None:
    e = evidence({"rework": 360_000.0}, incidents=(CRASH, replace(CRASH, lost_steps=1204)))
    assert told(e)["rework"].evidence == "1,234 steps lost, and no completed save was reported."
    saves = replace(NO_SAVES, count=9, mean_interval_s=1800.0, daly_s=1800.0)
    finding = told(evidence({"rework": 360_000.0}, incidents=(CRASH,), checkpoints=saves))["rework"]
    assert finding.evidence.endswith("1 interruption. Saves are 30 min apart; the advised interval is 30 min.")
    assert finding.next.startswith("Look at what interrupts the run")
    unknown = replace(saves, daly_s=None)
    finding = told(evidence({"rework": 360_000.0}, incidents=(CRASH,), checkpoints=unknown))["rework"]
    assert finding.evidence == "30 steps lost in 1 interruption."
    assert finding.next.startswith("Save closer together")


def test_skipped_steps_are_their_own_finding() -> None:
    e = evidence({"rework": 40_000.0}, phases_gpu_s={"rework": {"skipped": 40_000.0}})
    assert set(told(e)) == {"steps_skipped"}
    both = evidence({"rework": 50_000.0}, phases_gpu_s={"rework": {"skipped": 40_000.0}})
    assert {code: f.gpu_s for code, f in told(both).items()} == {"steps_skipped": 40_000, "rework": 10_000}


def test_a_hang_names_the_longest_ones_suspects() -> None:
    short = replace(CRASH, cause="hang", hang_gpu_s=1.0, detection_s=30.0, suspect_ranks=(7,))
    long = replace(CRASH, cause="hang", hang_gpu_s=2.0, detection_s=600.0, suspect_ranks=(3, 5))
    finding = told(evidence({"hang": 40_000.0}, incidents=(short, long, CRASH)))["hang"]
    assert finding.evidence == "2 hangs; the longest took 10 min to end. Suspected: rank 3, 5."
    nobody = told(evidence({"hang": 40_000.0}, incidents=(replace(long, suspect_ranks=()),)))["hang"]
    assert "Nothing tells which rank" in nobody.evidence
    passed = told(evidence({"hang": 40_000.0}, incidents=(CRASH,)))["hang"]
    assert passed.evidence.startswith("No attempt ended in it")


def test_startup_says_where_it_went() -> None:
    phases = {"startup": {"init": 9_000.0, "restart": 36_000.0, "launch": 7_200.0, "warmup": 100.0}}
    e = evidence({"startup": 52_300.0}, phases_gpu_s=phases, incidents=(replace(CRASH, restart_gpu_s=36_000.0),))
    finding = told(e)["startup"]
    assert finding.says == "100 % of the loss is startup: 14.5 GPU-hours, of it 10.0 GPU-hours after interruptions."
    assert finding.evidence == "Most of it: restart 10.0 GPU-hours, init 2.5 GPU-hours, launch 2.0 GPU-hours."
    assert finding.next.startswith("Shorten the largest phase")


def test_startup_without_interruptions_that_is_mostly_before_the_recorder() -> None:
    e = evidence({"startup": 40_000.0}, phases_gpu_s={"startup": {"init": 4_000.0, "launch": 36_000.0}})
    finding = told(e)["startup"]
    assert finding.says == "100 % of the loss is startup: 11.1 GPU-hours."
    assert finding.next.startswith("Launch is what comes before goodput.start")


def test_saves_that_cost_and_saves_that_are_too_close() -> None:
    saves = replace(NO_SAVES, count=40, mean_blocking_s=45.0, mean_interval_s=600.0)
    finding = told(evidence({"checkpoint": 40_000.0}, checkpoints=saves))["checkpoint"]
    assert finding.evidence == "40 saves block the loop for 45 s on average."
    close = told(evidence({"checkpoint": 40_000.0}, checkpoints=replace(saves, daly_s=1800.0)))["checkpoint"]
    assert close.evidence.endswith("They are 10 min apart; the advised interval is 30 min.")
    assert close.next == "Save every 30 min."
    near = told(evidence({"checkpoint": 40_000.0}, checkpoints=replace(saves, daly_s=900.0)))["checkpoint"]
    assert near.next.startswith("Save asynchronously")
    once = told(evidence({"checkpoint": 40_000.0}, checkpoints=replace(saves, count=1)))["checkpoint"]
    assert once.evidence == "1 save blocks the loop for 45 s."


def test_time_in_saves_is_told_though_none_was_completed() -> None:
    found = told(evidence({"checkpoint": 40_000.0}, checkpoints=replace(NO_SAVES, failed=1)))
    assert found["checkpoint"].gpu_s == 40_000
    assert found["checkpoint"].says == "100 % of the loss is blocked by saves: 11.1 GPU-hours."
    assert found["checkpoint"].evidence == "No save was completed in it."


def test_rework_without_a_whole_step() -> None:
    aborted = replace(CRASH, lost_steps=0)
    finding = told(evidence({"rework": 40_000.0}, incidents=(aborted,)))["rework"]
    assert finding.evidence == "No whole step lost, only what was under way, and no completed save was reported."
    saves = replace(NO_SAVES, count=4, mean_blocking_s=1.0)
    finding = told(evidence({"rework": 40_000.0}, incidents=(aborted,), checkpoints=saves))["rework"]
    assert finding.evidence == "No whole step lost, only what was under way in 1 interruption."


def test_failed_saves_are_told_whatever_they_cost() -> None:
    found = told(evidence(checkpoints=replace(NO_SAVES, count=4, failed=2)))
    assert set(found) == {"saves_failed"}
    assert found["saves_failed"].gpu_s is None
    assert found["saves_failed"].says.startswith("2 saves failed")


def test_a_named_rank_and_nobody_to_name() -> None:
    slow = Straggler(rank=3, node="gpu-07", loss_gpu_s=1.0, slowest_steps=4321, slowdown_ratio=1.304)
    finding = told(evidence({"straggler": 40_000.0}, stragglers=(slow,)))["straggler"]
    assert finding.evidence == "Rank 3 on gpu-07 was the latest in 4,321 steps, 1.30 times the median rank."
    assert finding.next == (
        "Test the node gpu-07 alone; if it is slow there too, take it out, else look at what this rank does besides."
    )
    bare = replace(slow, node=None, slowdown_ratio=None)
    finding = told(evidence({"straggler": 40_000.0}, stragglers=(bare,)))["straggler"]
    assert finding.evidence == "Rank 3 was the latest in 4,321 steps."
    assert finding.next.startswith("Test the node of rank 3 alone; ")
    assert "more often than chance" in told(evidence({"straggler": 40_000.0}))["straggler"].evidence


@pytest.mark.parametrize(
    ("quality", "code", "words"),
    [
        ({"max_skew_s": 1.01}, "clock_skew", "by up to 1 s"),
        ({"silent_ranks": (5, 9)}, "silent_ranks", "2 ranks never"),
        ({"assumed_gpu_s": 7200.0}, "assumed", "2.0 GPU-hours rest"),
        ({"gaps": 3}, "data_quality", "3 missing, 0 dropped, 0 lines"),
        ({"dropped": 4}, "data_quality", "4 dropped"),
        ({"rejected": {"torn": 2, "not_json": 3}}, "data_quality", "5 lines rejected"),
        ({"conflicts": 6}, "data_quality", "6 conflicts"),
        ({"sources_without_start": 7}, "data_quality", "7 sources without a start"),
    ],
)
def test_what_the_data_lacks_is_said(quality: dict[str, Any], code: str, words: str) -> None:
    found = told(evidence(quality=replace(GOOD, **quality)))
    assert set(found) == {code}
    assert words in found[code].says + found[code].evidence


def test_what_is_no_lack_is_not_said() -> None:
    assert find(evidence(quality=replace(GOOD, duplicates=9, max_skew_s=1.0, missing_steps=3))) == ()


def test_launches_side_by_side() -> None:
    assert "3 launches" in told(evidence(launches=3))["two_launches"].evidence


def test_durations_and_amounts_as_people_read_them() -> None:
    assert [hours(0.0), hours(0.004), hours(0.01)] == [
        "0.00 GPU-seconds",
        "less than 0.01 GPU-seconds",
        "0.01 GPU-seconds",
    ]
    assert [hours(3599), hours(3600), hours(3_600_000)] == ["3,599 GPU-seconds", "1.0 GPU-hours", "1,000.0 GPU-hours"]
    assert [span(9.94), span(10), span(119), span(120), span(7199), span(7200)] == [
        "9.9 s",
        "10 s",
        "119 s",
        "2 min",
        "120 min",
        "2.0 h",
    ]


# -- from events to findings ---------------------------------------------------------------------------------------


def found_in(story: Story) -> dict[str, Finding]:
    with loaded(story.events) as con:
        return {f.code: f for f in report(con, story.run).findings}


def with_spans(lengths: list[float], *, open_s: float | None = None) -> Story:
    """Steps of a second with a span of one's own after each, of these lengths."""
    story = Story()
    only = story.group(start=0, token="a")
    now = only.steps(1, 5, 10)
    for i, length in enumerate(lengths):
        only.span("upload", now, now + length, id=f"u{i}")
        now = only.steps(6 + i, 6 + i, now + length)
    if open_s is not None:
        only.span("upload", now, None, id="open")
        now += open_s
    only.stop(now, "exception" if open_s is not None else "finished")
    return story


def test_a_span_far_beyond_its_like() -> None:
    finding = found_in(with_spans([30, 30, 30, 30, 91]))["long_span"]
    assert finding.says == "1 span named 'upload' took far longer than their like."
    assert finding.evidence == "The longest took 91 s; 30 s is usual."


@pytest.mark.parametrize(
    "lengths",
    [
        [30, 30, 30, 30, 90],  # three times as long is not beyond it
        [30, 30, 30, 91],  # four are no habit
        [5, 5, 5, 5, 60],  # a minute is never long
    ],
)
def test_a_span_like_the_others(lengths: list[float]) -> None:
    assert "long_span" not in found_in(with_spans(lengths))


def test_a_span_that_never_ended_is_not_among_its_like() -> None:
    assert "long_span" not in found_in(with_spans([30, 30, 30, 30, 30], open_s=400))


def all_slow(rises: dict[int, float], *, usual: float = 1.0, ranks: int = 3) -> Story:
    """Steps of four seconds in which every rank works for a second, or for what `rises` says."""
    story = Story()
    only = story.group(start=0, ranks=ranks, token="a")
    for n in range(1, 41):
        busy = dict.fromkeys(range(ranks), rises.get(n, usual))
        only.step(n, 10 + 4 * (n - 1), 10 + 4 * n, busy=busy)
    only.stop(170, "finished")
    return story


def test_when_all_ranks_slow_down_together() -> None:
    finding = found_in(all_slow(dict.fromkeys(range(20, 30), 2.0)))["common_slowdown"]
    assert finding.says == "In 10 of 39 steps more than half of the ranks were late."
    assert finding.evidence == "More than half took over 1.2 times the run's usual 1 s of own work."
    assert finding.gpu_s == 30


def test_a_fifth_more_is_no_slowdown() -> None:
    assert "common_slowdown" not in found_in(all_slow(dict.fromkeys(range(20, 30), 1.2)))
    assert "common_slowdown" in found_in(all_slow(dict.fromkeys(range(20, 30), 1.21)))
    # One rank alone is not more than half of the ranks.
    assert "common_slowdown" not in found_in(all_slow(dict.fromkeys(range(20, 30), 2.0), ranks=1))


def slower(**more: Any) -> StepChange:
    """Steps that took 1 s and take 1.056 s, since a step in the middle of an attempt."""
    fields: dict[str, Any] = {
        "step": 42_783, "attempt": 1, "since_ns": 1_800_000_000 * 10**9, "until_ns": 1_800_100_000 * 10**9,
        "until_step": 99_999, "steps": 57_217, "lasts": True, "before_s": 1.0, "after_s": 1.056, "change_ratio": 0.056,
        "extra_gpu_s": 36_000.0, "part": "straggler", "part_s": 0.05, "ranks_before": 16, "ranks": 16,
        "new_attempt": False,
    }  # fmt: skip
    return StepChange(**fields | more)


def test_slower_steps_tell_since_when_and_who_is_the_slowest() -> None:
    named = slower(node="r7", slowest_ratio=0.96)
    one = told(evidence(step_change=named))["slower_steps"]
    assert one.says == "From step 42,783 on steps take 5.6 % longer: 10.0 GPU-hours so far."
    assert one.evidence == (
        "It began at 2027-01-15 08:00:00 UTC: 1.00 s before, 1.06 s after; straggler grew most. "
        "From then on node r7 is the slowest in 96 % of steps."
    )
    assert one.next.startswith("See what happened to node r7 at that time")
    assert one.gpu_s == 36_000
    alone = told(evidence(step_change=slower(node="r7", rank=3, slowest_ratio=0.96)))["slower_steps"]
    assert "rank 3 on node r7 is the slowest" in alone.evidence
    unplaced = told(evidence(step_change=slower(rank=3, slowest_ratio=0.96)))["slower_steps"]
    assert "on rank 3 is the slowest" in unplaced.evidence and "to rank 3 at that time" in unplaced.next


def test_slower_steps_that_passed_or_that_nobody_made_say_so() -> None:
    passed = slower(lasts=False, change_ratio=0.25, new_attempt=True)
    one = told(evidence(step_change=passed))["slower_steps"]
    assert one.says == "From step 42,783 to 99,999 steps took 25 % longer: 10.0 GPU-hours."
    assert "UTC, with a new attempt: " in one.evidence and "the slowest" not in one.evidence
    advice = {
        part: told(evidence(step_change=slower(part=part)))["slower_steps"].next
        for part in ("data_wait", "unattributed", "straggler", "productive")
    }
    assert len(set(advice.values())) == 4
    assert evidence(step_change=slower(extra_gpu_s=9_000.0)).allocated_gpu_s == 600_000
    assert find(evidence({"hang": 400_000.0}, step_change=slower(extra_gpu_s=9_000.0)))[-1].code == "hang"


def test_a_slow_node_is_told_with_its_device_where_it_is_one() -> None:
    node = {"node": "r7", "attempts": 3, "slowest_ratio": 0.9, "expected_ratio": 0.125, "waited_gpu_s": 18_000.0}
    one = told(evidence(slow_node=node | {"one_device": None}))["slow_node"]
    assert one.says == "Node r7 was the slowest in 3 attempts, whichever ranks ran on it: 5.0 GPU-hours."
    assert one.evidence == "It was in 90 % of the steps that waited; chance has 12 %."
    assert one.gpu_s == 18_000
    device = told(evidence(slow_node=node | {"one_device": 5}))["slow_node"]
    assert device.evidence.endswith("Nearly always it was its device 5.")
