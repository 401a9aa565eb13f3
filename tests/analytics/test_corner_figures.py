"""Small runs, each with one corner of a rule: which of two comes first, and on which side of a limit a figure lies."""

from __future__ import annotations

import pytest
from agreeing import told
from comparing import product_report
from loading import landed, loaded

from goodput_analytics import Settings
from reference.lives import to_lines
from reference.planned import S
from reference.stories import Story, at, gpu_s, phase_s


@pytest.mark.parametrize(("length", "hang"), [(14.5, None), (15, None), (15.5, 10.5)])
def test_a_step_hangs_beyond_three_typical_ones(length: float, hang: float | None) -> None:
    """Steps of mostly 5 s: the floor of 10 s does not count, three of them do."""
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 1, 10, 5)
    g.steps(2, 2, 15, 4)
    now = g.steps(3, 5, 19, 5)
    g.step(6, now, now + length)
    g.steps(7, 9, now + length, 5)
    g.stop(now + length + 15, "finished")
    assert phase_s(told(story), "hang") == ({} if hang is None else {"step": hang})


def test_a_typical_step_is_rounded_down() -> None:
    """Windows of three steps take 10 s: one takes 3,333,333,333 ns. The second attempt has but one window, of 12 s."""
    story = Story()
    g = story.group(start=0, token="one", job="a")
    for n in range(1, 6):
        g.step(3 * n, 10 * n, 10 * n + 10, count=3)
    g.stop(60, "exception")
    g = story.group(start=70, token="two", job="b")
    g.resume(75, 15)
    g.step(18, 80, 92, count=3)
    g.stop(92, "finished")
    told_sums = told(story)["_sums"]
    assert told_sums[1, "startup", "warmup"] == 12 * S - 3 * (10 * S // 3)


def test_a_span_declared_before_the_start_was_told_leaves_less_of_the_launch() -> None:
    story = Story()
    g = story.group(start=0, token="one")
    g.span("compile", 0.5, 3)
    g.steps(1, 3, 10)
    g.stop(13, "finished")
    assert phase_s(told(story), "startup") == {"launch": 0.5, "compile": 2.5, "init": 7}


def test_a_grant_that_grew_before_the_first_process_held_its_gpus_from_its_first_word_on() -> None:
    story = Story()
    scheduler = story.other("scheduler")
    scheduler.tell("allocation", at(0), job="job", gpus=1, start_ns=at(0), end_ns=None, nulls=("end_ns",))
    scheduler.tell("allocation", at(5), job="job", gpus=2, start_ns=at(5), end_ns=None, nulls=("end_ns",))
    g = story.group(start=8, token="one", ranks=2)
    g.steps(1, 3, 10)
    g.stop(13, "finished")
    assert gpu_s(told(story)) == {"startup": 5 + 2 * 5, "productive": 6}


def test_a_productive_span_that_is_open_now_is_productive() -> None:
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 3, 10)
    g.span("rollout", 13, None, category="productive")
    assert gpu_s(told(story, now=20)) == {"startup": 10, "productive": 3 + 7}
    assert gpu_s(told(story, now=13 + 61)) == {"startup": 10, "productive": 3, "hang": 61}


@pytest.mark.parametrize(("step", "rework"), [(2, 0), (5, 7)])
def test_an_open_evaluation_is_of_the_step_that_it_names(step: int, rework: float) -> None:
    """Steps 4 and 5 are thrown away; the evaluation at the end was of step 2, or of step 5."""
    story = Story()
    g = story.group(start=0, token="one", job="a")
    g.steps(1, 5, 10)
    g.span("evaluation", 15, None, step=step)
    g.stop(22, "exception")
    g = story.group(start=30, token="two", job="b")
    g.resume(35, 3)
    g.steps(4, 6, 40)
    g.stop(43, "finished")
    report = told(story)
    assert report["gpu_s"]["evaluation"] == 7 - rework
    assert report["incidents"][0]["rework_gpu_s"] == 2 + rework


def test_an_open_evaluation_is_charged_to_the_end_that_threw_its_step_away() -> None:
    """The first attempt died in the evaluation of step 4, and the second went on from there; after its own end, which
    followed a rollback, the third went on from step 2: that end costs steps 3 and 4, and the evaluation."""
    story = Story()
    g = story.group(start=0, token="one", job="a")
    g.steps(1, 5, 10)
    g.span("evaluation", 15, None, step=4)
    g.stop(22, "exception")
    g = story.group(start=30, token="two", job="b")
    g.resume(35, 4)
    g.steps(5, 7, 40)
    g.resume(43, 6)
    g.step(7, 43, 44)
    g.stop(44, "exception")
    g = story.group(start=50, token="three", job="c")
    g.resume(55, 2)
    g.steps(3, 8, 60)
    g.stop(66, "finished")
    first, rollback, second = told(story)["incidents"]
    assert (first["attempt"], first["lost_steps"], first["rework_gpu_s"]) == (0, 1, 1)
    assert (rollback["cause"], rollback["lost_steps"], rollback["rework_gpu_s"]) == ("rollback", 1, 1)
    assert (second["attempt"], second["lost_steps"], second["rework_gpu_s"]) == (1, 5, 2 + 3 + 7)


def drifting(*, shared: tuple[range, ...], alone: range, ahead: dict[int, float]) -> Story:
    """Three ranks; the clock of the last is ahead, by another amount in each thousand of steps, and some steps are told
    by that rank alone."""
    story = Story()
    g = story.group(start=0, ranks=3, token="one")
    now = 10.0
    for step in sorted({*alone, *(step for steps in shared for step in steps)}):
        g.step(step, now, now + 1, count=1, ranks=[2] if step in alone else None)
        now += 1
    g.stop(now, "finished")
    off_s = ahead[min(ahead)]
    for event in story.events:
        if event["source"] == "source-03":
            off_s = ahead[event["step"] // 1000] if "step" in event else off_s
            for name in {"ts_ns", "start_ns", "end_ns", "process_start_ns"} & set(event):
                event[name] += round(off_s * S)
    return story


def test_a_block_in_which_nobody_shared_a_step_has_the_clock_of_the_block_before() -> None:
    story = drifting(shared=(range(996, 1000), range(2000, 2004)), alone=range(1400, 1404), ahead={0: 3, 1: 3, 2: 5})
    report = told(story)
    assert (report["quality"]["max_skew_s"], report["gpu_s"]["productive"]) == (5, 3 * 12)


def test_before_the_first_shared_step_it_has_the_clock_of_the_next_block() -> None:
    story = drifting(shared=(range(1000, 1004),), alone=range(996, 1000), ahead={0: 5, 1: 5})
    report = told(story)
    assert (report["quality"]["max_skew_s"], report["gpu_s"]["productive"]) == (5, 3 * 8)


def test_attempts_are_told_apart_by_the_first_step_of_all_blocks() -> None:
    """The second process names no rank twice and the same world, but the first had made step 999 before it started."""
    story = Story()
    g = story.group(start=0, only=[0], world=2)
    for step in range(998, 1003):
        g.step(step, 10 + 5 * (step - 998), 15 + 5 * (step - 998))
    g = story.group(start=24, only=[1], world=2, token="two")
    g.steps(1003, 1005, 40)
    assert len(told(story)["attempts"]) == 2


@pytest.mark.parametrize(("seen", "attempts"), [((20,), 2), ((20, 30), 2), ((30, 20), 2), ((30,), 1), (None, 1)])
def test_a_process_joins_no_attempt_that_was_seen_to_have_gone(seen: tuple[float, ...] | None, attempts: int) -> None:
    story = Story()
    story.group(start=0, only=[0], world=2)
    for when in seen or ():
        story.other(f"agent at {when}").tell("exit_observed", at(when), of="source-01", signal=9)
    story.group(start=25, only=[1], world=2, token="two").stop(40, "exception")
    assert len(told(story)["attempts"]) == attempts


@pytest.mark.parametrize(("stops", "attempts"), [((20,), 2), ((20, 30), 2), ((30, 40), 1)])
def test_a_process_goes_with_its_first_stop(stops: tuple[float, ...], attempts: int) -> None:
    story = Story()
    g = story.group(start=0, only=[0], world=2)
    for when in stops:
        g.stop(when, "exception")
    story.group(start=25, only=[1], world=2, token="two").stop(50, "exception")
    assert len(told(story)["attempts"]) == attempts


def test_the_first_of_two_stops_says_why() -> None:
    """Rank 0 said that it failed, and then that it had finished; of rank 1 nothing was heard."""
    story = Story()
    g = story.group(start=0, only=[0, 1], world=3)
    g.stop(20, "exception", ranks=[0])
    g.stop(21, "finished", ranks=[0])
    story.group(start=25, only=[2], world=3, token="two").stop(50, "exception")
    assert len(told(story)["attempts"]) == 2


def test_an_attempt_that_only_started_lived_until_it_had_said_so() -> None:
    story = Story()
    story.group(start=0, token="one", job="a")
    g = story.group(start=30, token="two", job="b")
    g.steps(1, 2, 40)
    g.stop(42, "finished")
    report = told(story)
    assert [a["end_ns"] for a in report["attempts"]] == [at(1), at(42)]


@pytest.mark.parametrize(
    ("seen", "suspects"),
    [
        ({"signal": 9}, (1,)),
        ({"signal": 15}, ()),
        ({"signal": 15, "oom": True}, (1,)),
        ({"signal": 9, "exit_code": 0}, (1,)),
        ({"exit_code": 1}, (1,)),
        ({"exit_code": 0}, ()),
        ({}, ()),
    ],
)
def test_how_a_process_was_seen_to_go_makes_it_a_suspect(seen: dict[str, int], suspects: tuple[int, ...]) -> None:
    """What the launcher sends to the others, and a good end, do not."""
    story = Story()
    g = story.group(start=0, ranks=3, token="one")
    g.steps(1, 5, 10)
    story.other("agent").tell("exit_observed", at(16), of="source-02", **seen)
    g.stop(17, "signal", ranks=[0, 2])
    [incident] = told(story)["incidents"]
    assert incident["suspect_ranks"] == suspects


def test_an_end_before_its_begin_is_counted() -> None:
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 3, 10)
    g.span("checkpoint", 14, 13.5, step=3)
    g.steps(4, 5, 15)
    g.stop(17, "finished")
    with loaded(story.events) as con:
        assert product_report(con, story.run)["quality"]["negative_durations"] == 1


def test_deliveries_are_counted_by_run_and_reason() -> None:
    """The first file tells everything twice, one event otherwise the second time, and has lines that are none."""
    clean, dirty = Story(run="clean"), Story(run="dirty")
    for story in (clean, dirty):
        g = story.group(start=0, token="one")
        g.steps(1, 3, 10)
        g.stop(13, "finished")
        for event in story.events:
            event["source"] = f"{story.run}-{event['source']}"
    again = [dict(e) for e in dirty.events]
    again[-1]["reason"] = "exited"
    lines = [*to_lines(dirty.events), *to_lines(again)]
    broken = ['{"kind": "unheard of", "seq": 90, "ts_ns": 1}', "nonsense"]
    with landed([[*lines, *broken], to_lines(clean.events)]) as con:
        one, other = (product_report(con, run)["quality"] for run in ("dirty", "clean"))
    assert (one["duplicates"], one["conflicts"]) == (len(again) - 1, 1)
    assert list(one["rejected"]) == sorted(one["rejected"])
    assert sum(one["rejected"].values()) == len(broken)
    assert len(one["rejected"]) == 2
    assert (other["duplicates"], other["conflicts"], other["rejected"]) == (0, 0, {})


@pytest.mark.parametrize("expected_s", [0.5, 2])
def test_what_a_step_takes_beyond_the_expected_is_jitter(expected_s: float) -> None:
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 10, 10)
    g.stop(20, "finished")
    with loaded(story.events) as con:
        report = product_report(con, story.run, settings=Settings(expected_step_ns=round(expected_s * S)))
    assert report["gpu_s"]["straggler"] == 10 * max(1 - expected_s, 0)
