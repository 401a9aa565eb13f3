"""Ends that meet other things: zombies, grants, saves, and attempts that come while the one before still goes down."""

from __future__ import annotations

from agreeing import told

from reference.stories import Story, at, gpu_s, phase_s


def test_a_rank_that_still_speaks_after_the_end_had_not_fallen_silent() -> None:
    """Rank 1 is gone at 20, rank 0 was seen to go at 60 and speaks at 70: of the two it is rank 1 that fell silent."""
    story = Story()
    g = story.group(start=0, ranks=3, token="one")
    g.steps(1, 5, 10)
    g.step(6, 69, 70, ranks=[0])
    agent = story.other("agent")
    for rank, when in ((1, 20), (2, 60)):
        agent.tell("exit_observed", at(when), of=f"source-0{rank + 1}", signal=9)
    g.tell("heartbeat", 59, ranks=[2], step=5, phase="waiting", phase_since_ns=at(15))
    [incident] = told(story)["incidents"]
    assert (incident["cause"], incident["abort_ns"], incident["suspect_ranks"]) == ("hang", at(60), (1,))


def test_a_restart_costs_up_to_the_next_end_where_no_step_was_made() -> None:
    """The first attempt aborts at 20 but lets go at 100; the second lives from 30 to 50, without a step."""
    story = Story()
    g = story.group(start=0, ranks=3, token="one", job="a")
    g.steps(1, 5, 10)
    g.stop(20, "exception", ranks=[0, 1])
    g.stop(100, "exception", ranks=[2])
    g = story.group(start=30, token="two", job="b")
    g.stop(50, "exception")
    first, second = told(story)["incidents"]
    # Teardown of three GPUs from 20 to 50, and what the other job held from 30 to 50.
    assert (first["attempt"], first["restart_gpu_s"]) == (0, 3 * 30 + 20)
    assert (second["attempt"], second["restart_gpu_s"]) == (1, 0)


def test_startup_work_after_the_last_step_of_a_finished_attempt_is_part_of_the_restart() -> None:
    story = Story()
    g = story.group(start=0, token="one", job="a")
    g.steps(1, 10, 10)
    g.span("compile", 22, 25)
    g.stop(30, "finished")
    g = story.group(start=100, token="two", job="b")
    g.resume(105, 6)
    g.steps(7, 8, 110)
    g.stop(112, "finished")
    [rollback] = told(story)["incidents"]
    assert (rollback["cause"], rollback["abort_ns"], rollback["restart_gpu_s"]) == ("rollback", at(20), 3 + 10)


def test_a_resume_below_a_finished_attempt_is_a_rollback_though_nothing_is_lost_in_the_end() -> None:
    """The second attempt starts from nothing and dies without a step; the third goes on where the first finished."""
    story = Story()
    g = story.group(start=0, token="one", job="a")
    g.steps(1, 10, 10)
    g.stop(20, "finished")
    g = story.group(start=30, token="two", job="b")
    g.resume(35, None)
    g.stop(40, "exception")
    g = story.group(start=50, token="three", job="c")
    g.resume(55, 10)
    g.steps(11, 12, 60)
    g.stop(62, "finished")
    report = told(story)
    assert [(i["attempt"], i["cause"], i["lost_steps"]) for i in report["incidents"]] == [
        (0, "rollback", 0),
        (1, "crash", 0),
    ]
    assert gpu_s(report) == {"startup": 10 + 10 + 10, "productive": 12}


def test_a_finished_attempt_beyond_which_the_next_went_on_is_no_incident() -> None:
    """It fell back from 12 to 10 by itself, and made step 11 again; the next one goes on from 14, which descends from
    the farther of its lives. The other one's step is thrown away, but nobody resumed below it."""
    story = Story()
    g = story.group(start=0, token="one", job="a")
    g.steps(1, 12, 10)
    g.resume(22.5, 10)
    g.step(11, 23, 24)
    g.stop(24, "finished")
    g = story.group(start=50, token="two", job="b")
    g.resume(55, 14)
    g.steps(15, 16, 60)
    g.stop(62, "finished")
    report = told(story)
    assert [(i["attempt"], i["cause"], i["abort_ns"]) for i in report["incidents"]] == [(0, "rollback", at(22))]
    assert report["gpu_s"]["rework"] == 1


def test_a_save_alone_begins_no_life() -> None:
    """The second attempt saved before it made a step or said where from: the state is still that of the first."""
    story = Story()
    g = story.group(start=0, token="one", job="a")
    g.steps(1, 4, 10)
    g.span("checkpoint", 14, 15, step=4)
    g.steps(5, 6, 15)
    g.stop(17, "exception")
    g = story.group(start=30, token="two", job="b")
    g.span("checkpoint", 32, 33, step=0)
    report = told(story)
    assert gpu_s(report) == {"startup": 10 + 3, "productive": 4, "checkpoint": 1, "rework": 2}
    # Nor does one in the middle say that the run fell back to nothing.
    g.stop(34, "exception")
    g = story.group(start=50, token="three", job="c")
    g.resume(55, 4)
    g.steps(5, 6, 60)
    g.stop(62, "finished")
    report = told(story)
    assert [(i["attempt"], i["lost_steps"]) for i in report["incidents"]] == [(0, 2), (1, 0)]


def test_what_a_zombie_resumes_from_says_nothing() -> None:
    story = Story()
    g = story.group(start=0, ranks=3, token="one", job="a")
    g.stop(20, "exception", ranks=[0, 1])
    g.resume(25, 7, ranks=[2])
    g = story.group(start=40, token="two", job="b")
    g.steps(1, 3, 50)
    g.stop(53, "finished")
    report = told(story)
    assert [a["resume_step"] for a in report["attempts"]] == [None, 0]


def test_a_zombies_step_hides_no_heartbeat_that_went_before_it() -> None:
    """The heartbeat at 16 told of step 7; the step itself came when the attempt was over."""
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 5, 10)
    g.tell("heartbeat", 15.5, step=6, phase="step", phase_since_ns=at(15))
    g.tell("heartbeat", 16, step=7, phase="step", phase_since_ns=at(16))
    g.step(7, 24, 25)
    story.other("agent").tell("exit_observed", at(18), of="source-01", signal=9)
    report = told(story)
    [incident] = report["incidents"]
    assert (incident["last_progress_ns"], incident["detection_s"], incident["rework_gpu_s"]) == (at(16), 2, 2)


def test_a_zombies_step_ends_no_other_attempt() -> None:
    """Of two attempts of one job the later one aborts at 15 without a step; what it does at 19 is none."""
    story = Story()
    g = story.group(start=-20, token="one", job="a")
    g.steps(1, 5, -10)
    late = story.group(start=0, token="two", job="a")
    story.other("agent").tell("exit_observed", at(15), of="source-02", signal=9)
    late.step(1, 19, 20)
    g.steps(6, 8, 20, 1)
    g.stop(23, "finished")
    report = told(story)
    assert [(a["end_ns"], a["last_step"]) for a in report["attempts"]] == [(at(23), 8), (at(15), None)]


def test_a_step_told_in_two_pieces_is_done_with_the_second() -> None:
    """The abort comes between the two pieces of step 6: it is the unfinished one."""
    story = Story()
    g = story.group(start=0, ranks=3, token="one")
    g.steps(1, 5, 10)
    g.step(6, 15, 16)
    g.stop(18, "exception", ranks=[0, 1])
    g.step(6, 19, 20, ranks=[2])
    report = told(story)
    assert report["attempts"][0]["last_step"] == 6
    story.events = [
        e for e in story.events if not (e["kind"] == "step" and e["step"] == 6 and e["source"] < "source-03")
    ]
    report = told(story)
    assert report["attempts"][0]["last_step"] == 5
    assert report["gpu_s"]["rework"] == 3 * 3


def test_a_grant_that_was_over_before_an_attempt_began_did_not_end_it() -> None:
    story = Story()
    scheduler = story.other("scheduler")
    scheduler.tell("allocation", at(0), job="job", gpus=1, start_ns=at(0), end_ns=at(20), end_reason="preempted")
    g = story.group(start=0, token="one")
    g.steps(1, 5, 10)
    story.other("agent").tell("exit_observed", at(16), of="source-01", signal=9)
    g = story.group(start=30, token="two")
    g.steps(6, 7, 40)
    g.stop(43, "exception")
    assert [a["end_cause"] for a in told(story)["attempts"]] == ["crash", "crash"]


def test_a_run_of_which_one_rank_had_said_goodbye_is_lost_like_any_other() -> None:
    story = Story()
    g = story.group(start=0, ranks=3, token="one")
    g.steps(1, 5, 10)
    g.stop(15, "finished", ranks=[0])
    assert told(story, now=15 + 600)["state"] != "lost"
    assert told(story, now=15 + 601)["state"] == "lost"


def test_a_run_that_nobody_has_started_is_lost_when_its_scheduler_has_long_been_silent() -> None:
    story = Story()
    scheduler = story.other("scheduler")
    scheduler.tell("allocation", at(0), job="job", gpus=1, start_ns=at(0), end_ns=None, nulls=("end_ns",))
    assert [told(story, now=now)["state"] for now in (0, 600, 601)] == ["running", "running", "lost"]


def test_a_run_that_saved_and_ended_without_a_step_has_nothing_at_risk() -> None:
    story = Story()
    g = story.group(start=0, token="one")
    g.span("checkpoint", 5, 6, step=0)
    g.stop(8, "exception")
    assert told(story)["at_risk_gpu_s"] == 0


def test_skew_among_the_ranks_of_another_launch_is_none_of_this_one() -> None:
    story = Story()
    story.group(start=0, token="one", job="a").steps(1, 100, 10)
    story.group(start=0, ranks=3, token="two", job="b", ahead={1: 3}).steps(1, 100, 10)
    report = told(story)
    assert report["quality"]["max_skew_s"] == 0
    # But they are heard, each on its own clock: so long the run is known to be watched.
    assert report["as_of_ns"] == at(113)


def test_hang_is_the_last_thing_in_a_window() -> None:
    """The grant begins at 40, in the window of step 8 from 17 to 60, of which one second is a step and 42 hung."""
    story = Story()
    story.other("scheduler").tell(
        "allocation", at(40), job="job", gpus=1, start_ns=at(40), end_ns=None, nulls=("end_ns",)
    )
    g = story.group(start=0, token="one")
    g.steps(1, 7, 10)
    g.step(8, 17, 60)
    g.steps(9, 12, 60)
    report = told(story)
    assert (gpu_s(report), phase_s(report, "hang")) == ({"hang": 20, "productive": 4}, {"step": 20})


def test_of_two_spans_open_at_the_end_and_begun_together_the_save_is_the_inner_one() -> None:
    story = Story()
    g = story.group(start=0, ranks=2, token="one")
    g.steps(1, 3, 10)
    g.span("checkpoint", 13, None, ranks=[0], step=3)
    g.span("rollout", 13, None, ranks=[1])
    g.stop(113, "exception")
    assert phase_s(told(story), "hang") == {"checkpoint": 200}
