"""Small runs in which two things happen at one moment, or one thing is told in a way that is rare but allowed."""

from __future__ import annotations

from typing import Any

import pytest
from agreeing import told
from comparing import differences, product_report
from loading import loaded

from reference import reference_report
from reference.planned import S
from reference.stories import Story, at, gpu_s, phase_s

STRANGERS_WORDS: dict[str, dict[str, Any]] = {
    "joined": {"attempt_token": "t", "rank": 0, "world_size": 1},
    "resume": {"step": 1},
    "step": {"step": 1, "start_ns": at(1), "end_ns": at(2)},
    "begin": {"span": "init"},
    "end": {"span": "init"},
    "durable": {"step": 1},
    "progress": {},
    "heartbeat": {},
    "stop": {"reason": "exited"},
    "dropped": {"reason": "full", "count": 1},
    "exit_observed": {"of": "nobody"},
    "allocation": {"job": "job", "gpus": 1, "start_ns": at(0)},
}


def alone(story: Story) -> dict[str, Any]:
    """The product's report, where the reference keeps to what the contract says and the product knows a little more."""
    with loaded(story.events) as con:
        return product_report(con, story.run)


def plain(story: Story, start: float = 0, **fields: Any) -> None:
    g = story.group(start=start, token="one", **fields)
    g.steps(1, 3, start + 10)
    g.stop(start + 13, "finished")


@pytest.mark.parametrize("kind", STRANGERS_WORDS)
def test_what_a_stranger_says_is_counted_for_its_run_alone(kind: str) -> None:
    """A source without a start says one word twice, with three events missing between; in another run, later, another
    does so twice as often."""
    one, other = Story(run="one"), Story(run="other")
    for story, words in ((one, 2), (other, 4)):
        plain(story, job="job")
        pen = story.other("stranger")
        for word in range(words):
            pen.tell(kind, at(100 * words + word), **STRANGERS_WORDS[kind])
            pen.seq += 3 if word == 0 else 0
        for event in story.events:
            event["source"] = f"{story.run}-{event['source']}"
            if "job" in event:
                event["job"] = f"{story.run}-{event['job']}"
    with loaded([*one.events, *other.events]) as con:
        for story, words in ((one, 2), (other, 4)):
            report = product_report(con, story.run)
            assert differences(report, reference_report(story.events, story.run)) == []
            quality = report["quality"]
            assert (quality["events"], quality["gaps"]) == (5 + words, 3)
            assert report["as_of_ns"] == at(100 * words + words - 1)


def test_who_writes_what_only_a_rank_writes_is_a_source_without_a_start() -> None:
    """One told also of what it dropped, one of itself as well as of another; a third only speaks of another."""
    story = Story()
    plain(story)
    one, two, three = (story.other(name) for name in ("one", "two", "three"))
    one.tell("progress", at(11))
    one.tell("dropped", at(12), reason="full", count=1)
    two.tell("heartbeat", at(11), of="source-01")
    two.tell("heartbeat", at(12))
    three.tell("heartbeat", at(11), of="source-01")
    assert told(story)["quality"]["sources_without_start"] == 2


def test_a_grant_belongs_to_the_run_that_it_names_and_else_to_that_of_its_job() -> None:
    one, other = Story(run="one"), Story(run="other")
    for story in (one, other):
        plain(story, job=f"job of {story.run}")
        for event in story.events:
            event["source"] = f"{story.run}-{event['source']}"
    scheduler = other.other("scheduler")
    for job in ("job of one", "job of other", "job of nobody"):
        scheduler.tell("allocation", at(20), job=job, gpus=1, start_ns=at(0), end_ns=at(20))
        del scheduler.out[-1]["run"]
    named = one.other("other scheduler")
    named.tell("allocation", at(30), job="job of one", gpus=1, start_ns=at(0), end_ns=at(20))
    events = [*one.events, *other.events]
    with loaded(events) as con:
        for run, events_of_it in (("one", 5 + 1 + 1), ("other", 5 + 1)):
            report = product_report(con, run)
            assert differences(report, reference_report(events, run)) == []
            assert report["quality"]["events"] == events_of_it


def test_an_attempt_ends_with_the_first_stop_or_the_first_time_that_it_was_seen_to_have_gone() -> None:
    stopped, seen = Story(), Story()
    for story in (stopped, seen):
        g = story.group(start=0, token="one")
        g.steps(1, 3, 10)
        if story is stopped:
            g.stop(15, "exception")
            g.stop(25, "finished")
        else:
            for when in (15, 25):
                story.other(f"agent {when}").tell("exit_observed", at(when), of="source-01", signal=9)
        story.other("agent").tell("dropped", at(30), reason="full", count=1)
        report = told(story)
        assert (report["state"], report["attempts"][0]["end_ns"]) == ("failed", at(15))


def test_what_was_joined_counts_before_what_the_start_said() -> None:
    """The start named no rank of a world of two: its own figures were those of a process alone."""
    story = Story()
    for rank in (0, 1):
        g = story.group(start=0, only=[0], world=1, devices=1)
        g.tell("joined", 2, attempt_token="one", rank=rank, world_size=3)
        g.steps(1, 3, 10)
        g.stop(13, "finished")
    report = told(story)
    assert [a["world_size"] for a in report["attempts"]] == [3]
    assert report["quality"]["silent_ranks"] == (2,)


def test_the_job_is_the_one_that_most_ranks_name() -> None:
    story = Story()
    for rank, job in ((0, "a"), (1, "b"), (2, "b")):
        g = story.group(start=0, only=[rank], world=3, token="one", job=job)
        g.steps(1, 3, 10)
        g.stop(13, "finished")
    assert told(story)["attempts"][0]["job"] == "b"


def test_of_two_words_of_a_grant_at_one_moment_the_later_counts() -> None:
    story = Story()
    plain(story)
    scheduler = story.other("scheduler")
    for gpus in (2, 3):
        scheduler.tell("allocation", at(0), job="job", gpus=gpus, submit_ns=at(-5), start_ns=at(0), end_ns=at(13))
    report = told(story)
    assert (report["allocated_gpu_s"], report["queue_wait_s"]) == (3 * 13, 5)


def test_a_job_may_have_been_submitted_at_the_beginning_of_time() -> None:
    story = Story()
    plain(story)
    story.other("scheduler").tell("allocation", at(0), job="job", gpus=1, submit_ns=0, start_ns=at(0), end_ns=at(13))
    assert told(story)["queue_wait_s"] == at(0) / S


@pytest.mark.parametrize(("late", "named"), [(4, False), (5, True)])
def test_a_rank_is_named_from_its_fifth_step_on(late: int, named: bool) -> None:
    """Of four ranks: chance would make one the latest in 1.25 of 5 steps, and in more than 4.2 once in hundreds."""
    story = Story()
    g = story.group(start=0, ranks=4, token="one")
    even = dict.fromkeys(range(4), 0.5)
    for n in range(1, 15):
        g.step(n, 10 + n, 11 + n, busy={**even, 3: 0.9} if 3 <= n < 3 + late else even)
    g.stop(25, "finished")
    report = told(story)
    assert [row["rank"] for row in report["stragglers"]] == ([3] if named else [])
    assert phase_s(report, "straggler") == {"rank" if named else "jitter": pytest.approx(4 * 0.4 * late)}


@pytest.mark.parametrize(("late", "named"), [(9, False), (10, True)])
def test_a_rank_is_named_beyond_the_limit_of_chance(late: int, named: bool) -> None:
    """Of two ranks in s steps: s/2 + 3 * sqrt(s/4), which is 9 for 9 steps."""
    story = Story()
    g = story.group(start=0, ranks=2, token="one")
    for n in range(1, 15):
        g.step(n, 10 + n, 11 + n, busy={0: 0.5, 1: 0.9 if 3 <= n < 3 + late else 0.5})
    g.stop(25, "finished")
    assert [row["rank"] for row in told(story)["stragglers"]] == ([1] if named else [])


def test_as_many_ranks_count_as_told_how_late_they_were_in_any_step() -> None:
    """Rank 3 is the latest of four in 2 steps, and of two in 4: 6 is more than 1.5 + 3.2, but less than 3 + 3.7."""
    story = Story()
    g = story.group(start=0, ranks=4, token="one")
    for n in range(1, 15):
        busy = {2: 0.5, 3: 0.9 if 3 <= n < 9 else 0.5} | ({0: 0.5, 1: 0.5} if n < 5 or n > 8 else {})
        g.step(n, 10 + n, 11 + n, busy=busy, ranks=list(busy))
    g.stop(25, "finished")
    [row] = told(story)["stragglers"]
    assert (row["rank"], row["slowest_steps"]) == (3, 6)


@pytest.mark.parametrize("groups", [False, True])
def test_half_of_the_ranks_tell_how_late_they_were(groups: bool) -> None:
    """Ranks 2 and 3 of four say when they had done their own work: that is enough. Once only one of them does."""
    story = Story()
    g = story.group(start=0, ranks=4, token="one")
    if groups:
        for event in story.events:
            event["group"] = f"stage {event['rank'] // 2}"
    for n in range(1, 21):
        g.step(n, 10 + n, 11 + n, busy={2: 0.25, 3: 0.75} if n != 12 else {3: 0.75})
    g.stop(31, "finished")
    [row] = told(story)["stragglers"]
    assert row["rank"] == 3


def test_a_declared_kind_of_startup_is_startup_whatever_category_it_is_given() -> None:
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 3, 10)
    g.span("compile", 13, 16, category="productive")
    g.span("checkpoint", 16, 17, category="idle", step=3)
    g.span("evaluation", 17, 19, category="data_wait")
    g.steps(4, 5, 19)
    g.stop(21, "finished")
    report = told(story)
    assert gpu_s(report) == {"startup": 13, "productive": 5, "checkpoint": 1, "evaluation": 2}


@pytest.mark.parametrize(
    ("begun", "ended", "lost"), [(None, 2, 1), (None, 3, 0), (2, 3, 1), (3, 2, 0), (None, None, 0)]
)
def test_a_save_is_of_the_step_that_its_begin_names_and_else_its_end(
    begun: int | None, ended: int | None, lost: int
) -> None:
    """It ended in the very moment in which the attempt did. Without a name it is of the last step before it."""
    story = Story()
    g = story.group(start=0, token="one", job="a")
    g.steps(1, 3, 10)
    g.tell("begin", 13, span="checkpoint", id="1", step=begun)
    g.tell("end", 14, span="checkpoint", id="1", step=ended)
    g.stop(14, "exception")
    report = alone(story)
    assert report["gpu_s"]["rework"] == lost
    assert report["gpu_s"]["productive"] == 3 - lost


def test_a_save_that_names_no_step_is_of_its_own_attempts_last_step() -> None:
    story = Story()
    for n, job in enumerate("ab"):
        g = story.group(start=100 * n, token=job, job=job)
        g.steps(1 + 3 * n, 3 + 3 * n, 100 * n + 10)
        g.span("checkpoint", 100 * n + 13, 100 * n + 14)
        g.steps(4 + 3 * n, 5 + 3 * n, 100 * n + 14)
        g.stop(100 * n + 16, "exception")
    report = alone(story)
    assert report["checkpoints"]["count"] == 2
    assert gpu_s(report) == {"startup": 20, "productive": 6, "checkpoint": 2, "rework": 4}


def test_a_span_without_an_end_goes_on_to_the_next_step_but_not_to_one_that_begins_with_it() -> None:
    """Rank 1 had begun step 4 a little earlier."""
    story = Story()
    g = story.group(start=0, ranks=2, token="one")
    g.steps(1, 3, 10)
    g.span("tidying", 13, None, ranks=[0])
    g.step(4, 13, 15, ranks=[0])
    g.step(4, 12.9, 15, ranks=[1])
    g.steps(5, 5, 17)
    g.stop(18, "finished")
    assert phase_s(told(story), "unattributed") == {"tidying": 2 * 4}


def test_a_span_without_an_end_goes_on_to_the_stop_of_its_own_life_of_the_process() -> None:
    """The loop raised, the process began anew inside itself, and raised again."""
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 3, 10)
    g.stop(14, "exception")
    g.tell("joined", 20, attempt_token="two", rank=0, world_size=1)
    g.resume(21, 3)
    g.steps(4, 6, 25)
    g.span("tidying", 28, None)
    g.stop(32, "exception")
    report = told(story)
    assert [a["end_ns"] for a in report["attempts"]] == [at(14), at(32)]
    assert report["phases_gpu_s"]["unattributed"] == {"tidying": 4}


def test_a_process_that_stopped_before_it_began_anew_had_gone() -> None:
    """Rank 1 came between: it is of no attempt whose only process had stopped."""
    story = Story()
    g = story.group(start=0, only=[0], world=2, token="one")
    g.stop(20, "exception")
    h = story.group(start=25, only=[1], world=2)
    g.tell("joined", 30, attempt_token="two", rank=0, world_size=2)
    g.steps(1, 3, 40, ranks=[0])
    h.steps(1, 3, 40)
    report = told(story)
    assert report["attempts"][0]["end_ns"] == at(20)


def test_an_attempt_that_only_joined_lived_until_it_had_said_so() -> None:
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 3, 10)
    g.tell("joined", 20, attempt_token="two", rank=0, world_size=1)
    g = story.group(start=30, token="three")
    g.steps(4, 5, 40)
    g.stop(42, "finished")
    assert [a["end_ns"] for a in told(story)["attempts"]] == [at(13), at(20), at(42)]


def test_a_heartbeat_in_the_moment_of_a_new_beginning_is_of_the_new_one() -> None:
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 3, 10)
    story.other("beats").tell("heartbeat", at(20), of="source-01", step=3)
    g.tell("joined", 20, attempt_token="two", rank=0, world_size=1)
    g.steps(4, 5, 30)
    g.stop(32, "finished")
    assert [a["end_ns"] for a in told(story)["attempts"]] == [at(13), at(32)]


def test_a_step_told_in_pieces_stands_for_as_many_steps_as_its_largest_piece() -> None:
    """Steps 4 to 6 in two pieces, of which the second was not applied: all of it was. They stand for 3 of 9 steps."""
    story = Story()
    g = story.group(start=0, token="one", job="a")
    g.steps(1, 3, 10)
    g.step(6, 13, 15, count=3)
    g.step(6, 15, 16, count=1, applied=False)
    g.steps(7, 9, 16)
    g.stop(19, "exception")
    g = story.group(start=30, token="two", job="b")
    g.resume(35, 5)
    g.steps(6, 7, 40)
    g.stop(42, "finished")
    report = told(story)
    assert gpu_s(report) == {"startup": 20, "productive": 5 + 2, "rework": 1 + 3}
    assert report["incidents"][0]["lost_steps"] == 4


@pytest.mark.parametrize(("when", "lost"), [(29, 0), (30, 2)])
def test_what_is_said_to_be_durable_when_the_next_process_has_started_comes_too_late(when: float, lost: int) -> None:
    """The run died for good without another save."""
    story = Story()
    g = story.group(start=0, token="one", job="a")
    g.steps(1, 3, 10)
    g.span("checkpoint", 13, 14, step=1)
    g.span("checkpoint", 14, 15, step=3, background=True)
    g.stop(16, "exception")
    story.other("uploader")
    g.tell("durable", when, step=3)
    g = story.group(start=30, token="two", job="b")
    g.stop(40, "exception")
    report = told(story)
    assert (report["gpu_s"]["productive"], report["checkpoints"]["failed"]) == (3 - lost, 1 if lost else 0)


def test_a_word_of_a_durable_save_belongs_to_the_life_in_which_it_was_said() -> None:
    """No span tells of the save; the run fell back to 2, said that 3 is safe, and died."""
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 5, 10)
    g.resume(15, 2)
    g.steps(3, 4, 16)
    g.tell("durable", 18.5, step=3)
    g.steps(5, 5, 18.5)
    g.stop(20, "exception")
    report = told(story)
    assert report["gpu_s"]["productive"] == 3


def test_a_word_of_a_durable_save_in_the_moment_in_which_one_began_is_of_that_one() -> None:
    """Step 3 was saved, thrown away, made again and saved again."""
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 5, 10)
    g.span("checkpoint", 15, 16, step=3, background=True)
    g.resume(16, 2)
    g.steps(3, 4, 17)
    g.span("checkpoint", 19, 20, step=3, background=True)
    g.tell("durable", 19, step=3)
    g.steps(5, 5, 20)
    g.stop(21, "exception")
    report = told(story)
    assert (report["checkpoints"]["count"], report["gpu_s"]["productive"]) == (1, 3)


@pytest.mark.parametrize(("still", "hang"), [(29, 0), (31, 31)])
def test_an_attempts_own_steps_say_what_a_hang_is(still: float, hang: float) -> None:
    """Steps of 10 s in the second attempt, after many of 1 s in the first."""
    story = Story()
    g = story.group(start=0, token="one", job="a")
    g.steps(1, 20, 10)
    g.stop(30, "exception")
    g = story.group(start=50, token="two", job="b")
    g.steps(21, 24, 60, 10)
    g.stop(100 + still, "exception")
    assert told(story)["gpu_s"]["hang"] == hang


@pytest.mark.parametrize(("still", "hang"), [(10, 0), (10.5, 10.5)])
def test_a_finished_attempt_whose_last_rank_raised_hung_before_it_did(still: float, hang: float) -> None:
    """Two of three ranks finished; the last raised, and a span was declared to the end."""
    story = Story()
    g = story.group(start=0, ranks=3, token="one")
    g.steps(1, 5, 10)
    g.span("checkpoint", 15, 16, step=5)
    g.stop(17, "finished", ranks=[0, 1])
    g.stop(16 + still, "exception", ranks=[2])
    assert told(story)["gpu_s"]["hang"] == 3 * hang


def test_of_two_spans_that_began_together_the_later_ranks_is_the_one_that_hung() -> None:
    story = Story()
    g = story.group(start=0, ranks=2, token="one")
    g.steps(1, 5, 10)
    g.span("first", 15, None, ranks=[0])
    g.span("second", 15, None, ranks=[1])
    g.stop(100, "exception")
    assert phase_s(told(story), "hang") == {"second": 2 * 85}


def test_spans_that_begin_together_are_one_stretch_apart_from_what_came_before() -> None:
    """Rank 1 came 4 s late to step 6, of which 2.5 s lie in two spans of its own that began together."""
    story = Story()
    g = story.group(start=0, ranks=2, token="one")
    g.steps(1, 5, 10, busy={0: 0.5, 1: 0.5})
    g.span("upload", 15, 15.5, ranks=[1])
    g.span("short", 16.5, 17, ranks=[1])
    g.span("long", 16.5, 18.5, ranks=[1])
    g.step(6, 15, 20, ranks=[0], busy={0: 1})
    g.step(6, 19, 20, ranks=[1], busy={1: 0.25})
    g.steps(7, 9, 20, busy={0: 0.5, 1: 0.5})
    g.stop(23, "finished")
    report = told(story)
    assert report["gpu_s"]["unattributed"] > 0


def test_gpus_that_the_run_was_granted_and_no_process_named_are_idle() -> None:
    story = Story()
    plain(story)
    story.other("scheduler").tell("allocation", at(0), job="spare", gpus=2, start_ns=at(0), end_ns=at(5))
    assert gpu_s(told(story)) == {"startup": 10, "productive": 3, "idle": 2 * 5}


def test_a_grant_that_ended_before_the_next_one_began_held_nothing_between() -> None:
    story = Story()
    plain(story)
    scheduler = story.other("scheduler")
    for start, end in ((0, 13), (20, 30)):
        scheduler.tell("allocation", at(start), job="job", gpus=1, start_ns=at(start), end_ns=at(end))
    report = told(story)
    assert report["allocated_gpu_s"] == 13 + 10


def test_where_as_many_ranks_name_one_job_as_another_it_is_that_of_the_lowest_rank() -> None:
    story = Story()
    for rank, job in ((0, "b"), (1, "a")):
        g = story.group(start=0, only=[rank], world=2, token="one", job=job)
        g.steps(1, 3, 10)
        g.stop(13, "finished")
    assert told(story)["attempts"][0]["job"] == "b"


def test_a_grant_that_had_ended_when_a_process_started_did_not_end_it() -> None:
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 3, 10)
    story.other("scheduler").tell("allocation", at(0), job="job", gpus=1, start_ns=at(-10), end_ns=at(0))
    report = told(story)
    assert (report["state"], report["allocated_gpu_s"]) == ("running", 10)


def test_of_two_grants_that_ended_together_the_later_says_why() -> None:
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 3, 10)
    scheduler = story.other("scheduler")
    for start, why in ((0, "failed"), (20, "preempted")):
        scheduler.tell("allocation", at(start), job="job", gpus=1, start_ns=at(start), end_ns=at(20), end_reason=why)
    assert told(story)["attempts"][0]["end_cause"] == "preempted"


def test_a_grant_that_ended_when_the_next_attempt_began_did_not_end_the_one_before() -> None:
    """Nobody saw that one go: it lived until it was last heard of."""
    story = Story()
    g = story.group(start=0, token="one", job="a")
    g.steps(1, 3, 10)
    g = story.group(start=30, token="two", job="b")
    g.steps(4, 5, 40)
    g.stop(42, "finished")
    scheduler = story.other("scheduler")
    for job, start, end in (("a", 0, 30), ("b", 30, 42)):
        scheduler.tell("allocation", at(start), job=job, gpus=1, start_ns=at(start), end_ns=at(end))
    report = told(story)
    assert report["attempts"][0]["end_ns"] == at(13)
    assert gpu_s(report) == {"startup": 20, "productive": 5, "idle": 17}


def test_an_attempt_whose_first_step_was_its_last_moment_ended_the_one_before() -> None:
    """The first process was still there when the second, of the same job, made a step, and raised."""
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 3, 10)
    h = story.group(start=20, token="two")
    h.step(4, 25, 30)
    h.stop(30, "exception")
    g.stop(40, "exception")
    assert told(story)["attempts"][0]["end_ns"] == at(25)


@pytest.mark.parametrize("again", ["step", "resume"])
def test_a_rollback_told_last_before_a_process_began_anew_is_one(again: str) -> None:
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 4, 10)
    if again == "step":
        g.step(3, 14, 15)
    else:
        g.resume(15, 2)
    g.tell("joined", 20, attempt_token="two", rank=0, world_size=1)
    g.resume(21, 3 if again == "step" else 2)
    g.steps(4, 6, 25)
    g.stop(28, "finished")
    rows = told(story)["incidents"]
    assert [row["cause"] for row in rows][:1] == ["rollback"]


def test_of_two_spans_that_one_rank_began_together_the_later_takes_the_time() -> None:
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 3, 10)
    g.tell("begin", 13, span="outer", id="1")
    g.tell("begin", 13, span="inner", id="2")
    g.tell("end", 14, span="inner", id="2")
    g.tell("end", 16, span="outer", id="1")
    g.steps(4, 5, 16)
    g.stop(18, "finished")
    assert phase_s(told(story), "unattributed") == {"inner": 1, "outer": 2}


@pytest.mark.parametrize(("silence", "cause"), [(60, "lost"), (60.5, "hang")])
def test_an_attempt_of_which_nothing_was_heard_for_a_minute_had_not_hung_for_longer(silence: float, cause: str) -> None:
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 3, 10)
    g = story.group(start=13 + silence, token="two")
    g.steps(4, 5, 90)
    g.stop(92, "finished")
    assert told(story)["attempts"][0]["end_cause"] == cause


def test_many_lives_of_one_step_each() -> None:
    """Each of two ranks fell back twenty times, to one step before; rank 1's clock is 5 s ahead."""
    story = Story()
    g = story.group(start=0, ranks=2, token="one", ahead={1: 5})
    for n in range(20):
        g.step(40 - n, 10 + n, 11 + n)
    g.stop(30, "finished")
    report = told(story)
    assert (len(report["incidents"]), report["quality"]["max_skew_s"]) == (19, 5)
    assert gpu_s(report) == {"startup": 20, "productive": 2, "rework": 38}


def test_the_longest_wait_against_the_ranks_own_group_is_of_the_lowest_rank_among_equals() -> None:
    """Ranks 1 and 3 are late by as much, each in its own group."""
    story = Story()
    g = story.group(start=0, ranks=4, token="one")
    for event in story.events:
        event["group"] = f"stage {event['rank'] // 2}"
    for n in range(1, 21):
        g.step(n, 10 + n, 11 + n, busy={0: 0.25, 1: 0.75, 2: 0.25, 3: 0.75})
    g.stop(31, "finished")
    assert [row["rank"] for row in told(story)["stragglers"]] == [1]


def test_what_was_kept_of_a_window_comes_before_what_was_thrown_away() -> None:
    """Steps 1 to 4 in one event: 1 was kept, the end that went back to 1 cost 2 and 3, and the first end 4."""
    story = Story()
    for n, (resumed, job) in enumerate(((0, "a"), (3, "b"), (1, "c"))):
        g = story.group(start=100 * n, token=job, job=job)
        g.resume(100 * n + 5, resumed)
        if n == 0:
            g.step(0, 16, 18)
            g.step(4, 18, 22, count=4)
            g.span("checkpoint", 22, 23, step=4)
        else:
            g.step(resumed + 1, 100 * n + 10, 100 * n + 11)
        g.stop(100 * n + 25, "exception" if n < 2 else "finished")
    with loaded(story.events) as con:
        report = product_report(con, story.run)
        rows = con.execute(
            "SELECT category, start_ns, end_ns FROM ledger_intervals WHERE attempt = 0 AND step = 4 ORDER BY start_ns"
        ).fetchall()
    assert differences(report, story.report()) == []
    times = [(str(category), (start - at(0)) / S, (end - at(0)) / S) for category, start, end in rows]
    assert [row for row in times if row[2] <= 22] == [("productive", 18, 19), ("rework", 19, 21), ("rework", 21, 22)]


@pytest.mark.parametrize(("begun", "productive"), [(14.5, 0), (15, 2)])
def test_a_save_that_begins_in_the_moment_of_a_rollback_is_of_the_new_life(begun: float, productive: float) -> None:
    """It went back to nothing, and died: what is safe is what that life saved, or nothing."""
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 4, 10)
    g.tell("begin", begun, span="checkpoint", id="1", step=2)
    g.resume(15, 0)
    g.tell("end", 16, span="checkpoint", id="1")
    g.steps(1, 3, 16)
    g.stop(19, "exception")
    report = told(story)
    assert report["gpu_s"]["productive"] == productive


def test_an_evaluation_that_begins_in_the_moment_of_a_rollback_is_of_the_new_life() -> None:
    """Step 3 was thrown away, and made again: the evaluation is of the second one."""
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 4, 10)
    g.tell("begin", 14, span="evaluation", id="1", step=3)
    g.resume(14, 2)
    g.tell("end", 16, span="evaluation", id="1")
    g.steps(3, 5, 16)
    g.stop(19, "finished")
    report = told(story)
    assert gpu_s(report) == {"startup": 10, "productive": 5, "rework": 2, "evaluation": 2}


def test_a_heartbeat_in_the_moment_of_the_end_says_where_a_rank_was() -> None:
    story = Story()
    g = story.group(start=0, ranks=3, token="one")
    g.steps(1, 5, 10)
    for rank in range(3):
        g.tell("heartbeat", 95, ranks=[rank], step=5, phase="step")
        g.tell("heartbeat", 100, ranks=[rank], step=5, phase="waiting" if rank else "step")
    g.stop(100, "signal")
    assert told(story)["incidents"][0]["suspect_ranks"] == (0,)


def test_a_span_without_an_end_goes_on_to_the_last_step_before_a_rollback() -> None:
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 3, 10)
    g.span("tidying", 13, None)
    g.step(4, 15, 16)
    g.steps(3, 6, 18)
    g.stop(22, "finished")
    assert phase_s(told(story), "unattributed") == {"tidying": 2}


def test_a_rank_is_slow_before_and_after_a_rollback_and_around_saves() -> None:
    """Rank 3 is late by another amount in every step; half of them lie after a rollback, and some beside a save."""
    story = Story()
    g = story.group(start=0, ranks=4, token="one")
    for event in story.events:
        event["group"] = f"stage {event['rank'] // 2}"
    now = 10.0
    for n in [*range(1, 13), *range(7, 19)]:
        if n % 5 == 0:
            g.span("checkpoint", now, now + 0.5, step=n - 1)
            now += 0.5
        late = 0.4 + 0.02 * (now % 7)
        g.step(n, now, now + 1, busy={0: 0.1, 1: 0.2, 2: 0.2 + 0.01 * (n % 3), 3: late})
        now += 1
    g.stop(now, "finished")
    [row] = told(story)["stragglers"]
    assert row["rank"] == 3


def test_what_ends_in_the_very_moment_of_the_attempts_end_is_progress_and_what_follows_is_none() -> None:
    """Two of three ranks stopped at 20 s, when a step ended; the third made two more."""
    story = Story()
    g = story.group(start=0, ranks=3, token="one", job="a")
    g.steps(1, 10, 10)
    g.stop(20, "exception", ranks=[0, 1])
    g.tell("heartbeat", 20.5, ranks=[2], step=10, phase="step")
    g.steps(11, 12, 20, ranks=[2])
    g.stop(22, "exception", ranks=[2])
    g = story.group(start=30, ranks=3, token="two", job="b")
    g.resume(35, 10)
    g.steps(11, 14, 40)
    g.stop(44, "finished")
    report = told(story)
    assert report["attempts"][0]["last_step"] == 10
    assert gpu_s(report)["productive"] == 3 * 14


def test_the_first_25_steps_after_the_first_say_what_that_was_too_long() -> None:
    """12 of 1 s and 13 of 2 s: the typical one is of 2 s; the first took 5 s."""
    story = Story()
    g = story.group(start=0, token="one")
    g.step(1, 10, 15)
    now = g.steps(2, 13, 15)
    now = g.steps(14, 26, now, 2)
    now = g.steps(27, 40, now, 1)
    g.stop(now, "finished")
    assert phase_s(told(story), "startup")["warmup"] == 3


@pytest.mark.parametrize("granted", [False, True])
def test_a_run_that_holds_no_gpus_has_an_empty_ledger(granted: bool) -> None:
    story = Story()
    plain(story, devices=None if granted else 0)
    if granted:
        story.other("scheduler").tell("allocation", at(0), job="job", gpus=0, start_ns=at(0), end_ns=at(13))
    report = told(story)
    assert (report["allocated_gpu_s"], report["goodput_ratio"]) == (0, None)


def test_a_span_without_an_end_goes_on_to_the_step_with_which_the_run_fell_back() -> None:
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 4, 10)
    g.span("tidying", 14, None)
    g.steps(3, 6, 16)
    g.stop(20, "finished")
    assert phase_s(told(story), "unattributed") == {"tidying": 2}


def test_a_compilation_in_the_first_step_after_a_rollback_is_no_restart() -> None:
    """It begins with the step: what the rollback cost is the wait before."""
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 4, 10)
    g.resume(14, 2)
    g.span("compile", 16, 17)
    g.step(3, 16, 18)
    g.steps(4, 6, 18)
    g.stop(21, "finished")
    [rollback] = told(story)["incidents"]
    assert (rollback["cause"], rollback["restart_gpu_s"]) == ("rollback", 2)


def test_the_last_step_before_a_rollback_and_the_first_after_it_are_measured_beside_their_spans() -> None:
    """Rank 1 comes 0.5 s late to both, and has spans of its own in that time."""
    story = Story()
    g = story.group(start=0, ranks=2, token="one")
    now = 10.0
    for n in [*range(1, 7), *range(4, 9)]:
        late = 0.5 if (n, now) in ((6, 20), (4, 22)) else 0
        if late:
            g.span("upload", now + 0.1, now + 0.3, ranks=[1])
        g.step(n, now, now + 2, ranks=[0], busy={0: 0.5})
        g.step(n, now + late, now + 2, ranks=[1], busy={1: 1})
        now += 2
    g.stop(now, "finished")
    assert told(story)["gpu_s"]["straggler"] > 0


@pytest.mark.parametrize(("length", "hang"), [(24, None), (25, 17)])
def test_a_step_hangs_by_the_25_before_and_the_25_after_it(length: float, hang: float | None) -> None:
    """25 of 4 s and 25 of 12 s: 8 s are typical. Those further away took 1 s and 20 s."""
    story = Story()
    g = story.group(start=0, token="one")
    now = g.steps(1, 40, 10, 1)
    now = g.steps(41, 65, now, 4)
    g.step(66, now, now + length)
    now = g.steps(67, 91, now + length, 12)
    now = g.steps(92, 120, now, 20)
    g.stop(now, "finished")
    assert phase_s(told(story), "hang") == ({} if hang is None else {"step": hang})


def test_what_a_rank_said_after_its_attempts_end_is_no_mark_of_it() -> None:
    """Two of three ranks raised at 30 s; the third had said at 22 s that it was at step 12, which it made after 30 s.
    In both attempts the clock of rank 2 is 100 s ahead."""
    story = Story()
    for n, job in enumerate("ab"):
        start = 100 * n
        g = story.group(start=start, ranks=3, token=job, job=job, ahead={2: 100})
        g.steps(1 + 10 * n, 10 + 10 * n, start + 10)
        g.tell("heartbeat", start + 21, ranks=[2], step=10 + 10 * n, phase="step")
        g.tell("heartbeat", start + 22, ranks=[2], step=11 + 10 * n, phase="step")
        g.tell("heartbeat", start + 23, ranks=[2], step=11 + 10 * n, phase="step")
        g.stop(start + 30, "exception", ranks=[0, 1])
        g.steps(11 + 10 * n, 12 + 10 * n, start + 30, ranks=[2])
        g.stop(start + 33, "exception", ranks=[2])
    report = told(story)
    assert [row["last_progress_ns"] for row in report["incidents"]] == [at(22), at(122)]


def test_a_rank_that_went_on_after_its_attempts_end_had_not_advanced_by_what_it_made_before() -> None:
    """Rank 2's heartbeats at 21 s and 22 s tell of steps that it had told of already."""
    story = Story()
    g = story.group(start=0, ranks=3, token="one")
    g.steps(1, 4, 10)
    g.resume(14, 2)
    g.steps(3, 10, 14)
    g.tell("heartbeat", 23, ranks=[2], step=9, phase="step")
    g.tell("heartbeat", 24, ranks=[2], step=10, phase="step")
    g.stop(30, "exception", ranks=[0, 1])
    g.steps(11, 12, 30, ranks=[2])
    g.stop(33, "exception", ranks=[2])
    assert told(story)["incidents"][-1]["last_progress_ns"] == at(22)


@pytest.mark.parametrize(("rank", "paused"), [(1, False), (0, True)])
def test_a_run_is_paused_when_every_rank_said_so_last(rank: int, paused: bool) -> None:
    """Of two ranks, both between steps; then rank 1 says once more that it is in a step, or rank 0 that it is not."""
    story = Story()
    g = story.group(start=0, ranks=2, token="one")
    g.steps(1, 5, 10)
    g.tell("heartbeat", 16, step=5, phase="between")
    g.tell("heartbeat", 17, ranks=[rank], step=5, phase="between" if paused else "step")
    assert told(story, now=60)["state"] == ("paused" if paused else "hung")


def test_of_two_spans_that_one_rank_left_open_the_later_is_the_one_that_hung() -> None:
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 5, 10)
    g.span("outer", 15, None)
    g.span("inner", 15, None)
    g.stop(100, "exception")
    assert phase_s(told(story), "hang") == {"inner": 85}


def test_a_span_is_measured_by_its_like_that_ended_by_the_time_it_began() -> None:
    """One of 40 s ended in the moment in which the open one began: three times that long it may take."""
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 5, 10)
    g.span("tidying", 15, 55)
    g.span("tidying", 55, None)
    g.stop(155, "exception")
    assert told(story)["gpu_s"]["hang"] == 0


def test_the_last_25_steps_say_when_stillness_is_a_hang() -> None:
    """The last 25 steps: 12 of 10 s, and 13 of 1 s. One more of 10 s stands before them."""
    story = Story()
    g = story.group(start=0, token="one")
    g.step(1, 10, 11)
    now = g.steps(2, 14, 11, 10)
    now = g.steps(15, 27, now, 1)
    g.stop(now + 12, "exception")
    assert told(story)["gpu_s"]["hang"] == 12


@pytest.mark.parametrize("alone", [False, True])
def test_an_attempts_first_step_says_nothing_of_what_is_typical(alone: bool) -> None:
    """Of 30 s in each attempt; the second steps took 1 s. Where an attempt has no second step, those of the others
    count."""
    story = Story()
    for n, job in enumerate("abc"):
        g = story.group(start=100 * n, token=job, job=job)
        now = g.steps(1 + 2 * n, 1 + 2 * n, 100 * n + 10, 30)
        if not (alone and n == 2):
            now = g.steps(2 + 2 * n, 2 + 2 * n, now)
        g.stop(now + 12, "exception")
    assert told(story)["gpu_s"]["hang"] == 3 * 12
