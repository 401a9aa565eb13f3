"""Small runs worked out by hand: what was kept, and what was thrown away."""

from __future__ import annotations

from .stories import Story, at, gpu_s, phase_s


def test_a_rollback_inside_an_attempt() -> None:
    """Saved at 5; at step 9 back to it, without a `resume`: steps 6 to 9 and their evaluation were for nothing."""
    story = Story()
    g = story.group(start=0, ranks=2, token="one")
    g.steps(1, 5, 10)
    g.span("checkpoint", 15, 16, step=5)
    g.steps(6, 9, 16)
    g.span("evaluation", 20, 22, step=9)
    g.span("load_checkpoint", 23, 26)
    g.steps(6, 15, 28)
    g.stop(38, "finished")
    report = story.report()
    assert gpu_s(report) == {"startup": 20 + 12, "productive": 30, "checkpoint": 2, "rework": 8 + 4}
    assert phase_s(report, "startup") == {"launch": 2, "init": 18, "load_checkpoint": 6, "restart": 6}
    [rollback] = report["incidents"]
    assert (rollback["cause"], rollback["lost_steps"], rollback["detection_s"]) == ("rollback", 4, 0)
    assert (rollback["rework_gpu_s"], rollback["restart_gpu_s"]) == (12, 12)
    assert rollback["recovered_ns"] == at(28)


def test_null_counts_only_if_every_rank_says_it() -> None:
    """Rank 1 says that it loaded nothing, but rank 0 loaded step 5: the run goes on from 5."""
    story = Story()
    g = story.group(start=0, ranks=2, token="one")
    g.steps(1, 8, 10)
    g.stop(18, "preempted")
    g = story.group(start=20, ranks=2, token="two")
    g.resume(25, 5, ranks=[0])
    g.resume(25, None, ranks=[1])
    g.steps(6, 8, 30)
    g.stop(33, "finished")
    report = story.report()
    assert gpu_s(report) == {"startup": 44, "productive": 16, "rework": 6}
    assert report["attempts"][1]["resume_step"] == 5


def test_the_newest_durable_save_is_the_one_that_became_durable_last() -> None:
    """Background saves of 4 and 8; the word on 8 comes first. After the crash the run stands at 4."""
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 4, 10)
    g.span("checkpoint", 14, 15, step=4, background=True)
    g.steps(5, 8, 15)
    g.span("checkpoint", 19, 20, step=8, background=True)
    g.steps(9, 12, 20)
    g.tell("durable", 21.5, step=8, ok=True)
    g.tell("durable", 22.5, step=4, ok=True)
    g.stop(24, "exception")
    report = story.report()
    assert gpu_s(report) == {"startup": 10, "productive": 4, "checkpoint": 2, "rework": 8}
    assert report["incidents"][0]["lost_steps"] == 8
    assert report["incidents"][0]["suspect_ranks"] == [0]


def test_saves_that_all_failed_keep_nothing() -> None:
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 4, 10)
    g.span("checkpoint", 14, 15, step=4, ok=False)
    g.steps(5, 8, 15)
    g.stop(19, "exception")
    report = story.report()
    assert gpu_s(report) == {"startup": 10, "checkpoint": 1, "rework": 8}
    assert (report["checkpoints"]["count"], report["checkpoints"]["failed"]) == (0, 1)


def test_a_productive_span_shares_the_fate_of_its_window() -> None:
    """A rollout before each of two steps; the second window is thrown away with its rollout."""
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 4, 10)
    g.span("rollout", 14, 17, category="productive")
    g.step(5, 17, 18)
    g.span("checkpoint", 18, 19, step=5)
    g.span("rollout", 19, 24, category="productive")
    g.step(6, 24, 25)
    g.stop(25, "exception")
    report = story.report()
    assert gpu_s(report) == {"startup": 10, "productive": 8, "checkpoint": 1, "rework": 6}


def test_a_resume_below_what_a_finished_attempt_reached_is_a_rollback() -> None:
    """The first attempt finished at 10; the user starts again from 6, in a job of its own."""
    story = Story()
    g = story.group(start=0, token="one", job="a")
    g.steps(1, 10, 10)
    g.stop(20, "finished")
    g = story.group(start=100, token="two", job="b")
    g.resume(105, 6)
    g.steps(7, 12, 110)
    g.stop(116, "finished")
    report = story.report()
    assert gpu_s(report) == {"startup": 20, "productive": 12, "rework": 4}
    [row] = report["incidents"]
    assert (row["attempt"], row["cause"], row["lost_steps"]) == (0, "rollback", 4)
    assert (row["abort_ns"], row["rework_gpu_s"], row["restart_gpu_s"]) == (at(20), 4, 10)


def test_at_risk_is_what_a_live_attempt_did_since_its_last_save() -> None:
    story = Story()
    g = story.group(start=0, ranks=2, token="one")
    g.steps(1, 4, 10)
    assert story.report()["at_risk_gpu_s"] is None
    g.span("checkpoint", 14, 15, step=4)
    g.steps(5, 7, 15)
    report = story.report()
    assert report["at_risk_gpu_s"] == 6
    assert gpu_s(report) == {"startup": 20, "productive": 14, "checkpoint": 2}


def lives_of_one_run(story: Story, *lives: tuple[int | None, int, int, float]) -> None:
    """Attempts a minute apart, each: resumed at, first step, last step, length of a step. All but the last crash."""
    start = 0.0
    for n, (resumed, first, last, length) in enumerate(lives):
        g = story.group(start=start, token=f"token-{n}", job=f"job-{n}")
        g.resume(start + 5, resumed)
        end = g.steps(first, last, start + 10, length)
        g.stop(end, "finished" if n + 1 == len(lives) else "signal")
        start = end + 60


def test_the_line_goes_through_the_latest_life_that_reached_the_step() -> None:
    """The second life ends exactly at 10, from where the third goes on; the first had reached 20 before it."""
    story = Story()
    lives_of_one_run(story, (None, 1, 20, 1.0), (5, 6, 10, 2.0), (10, 11, 12, 1.0))
    report = story.report()
    assert gpu_s(report) == {"startup": 30, "productive": 5 + 10 + 2, "rework": 15}
    assert [i["lost_steps"] for i in report["incidents"]] == [15, 0]


def test_steps_that_nobody_reported_are_missing_and_not_thrown_away() -> None:
    """Resumed at 12, which no life was seen to reach: of the two that reached 10 it is the latest."""
    story = Story()
    lives_of_one_run(story, (None, 1, 10, 1.0), (5, 6, 10, 2.0), (12, 13, 14, 1.0))
    assert gpu_s(story.report()) == {"startup": 30, "productive": 5 + 10 + 2, "rework": 5}


def test_a_step_is_charged_to_the_end_after_which_the_run_fell_below_it() -> None:
    """1 to 10; again from 8 to 12; again from 4. Steps 9 and 10 cost the first end, all the others the second."""
    story = Story()
    lives_of_one_run(story, (None, 1, 10, 1.0), (8, 9, 12, 1.0), (4, 5, 6, 1.0))
    report = story.report()
    assert [(i["lost_steps"], i["rework_gpu_s"]) for i in report["incidents"]] == [(2, 2), (8, 8)]
    assert gpu_s(report) == {"startup": 30, "productive": 6, "rework": 10}
