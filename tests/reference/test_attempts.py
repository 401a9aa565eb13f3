"""Small runs worked out by hand: attempts, how they end, and the GPUs that they hold."""

from __future__ import annotations

import pytest

from .stories import Story, at, gpu_s, phase_s


def test_a_second_token_in_a_process_begins_a_new_attempt() -> None:
    """Two ranks step to 15 s, join again at 20 s and step from 25 s. Five quiet seconds are a restart, no hang."""
    story = Story()
    g = story.group(start=0, ranks=2, token="one")
    g.steps(1, 5, 10)
    g.tell("joined", 20, attempt_token="two", rank=0, world_size=2, ranks=[0])
    g.tell("joined", 20, attempt_token="two", rank=1, world_size=2, ranks=[1])
    g.resume(21, 3)
    g.steps(4, 6, 25)
    g.stop(28, "finished")
    report = story.report()
    assert [a["end_cause"] for a in report["attempts"]] == ["lost", "finished"]
    assert [a["resume_step"] for a in report["attempts"]] == [0, 3]
    # 10 s before the first step, 5 s of silence to the second token, 5 s to the next step; steps 4 and 5 again.
    assert gpu_s(report) == {"startup": 40, "productive": 12, "rework": 4}
    assert phase_s(report, "startup") == {"launch": 2, "init": 28, "restart": 10}
    assert report["incidents"][0]["lost_steps"] == 2


def test_more_than_half_of_the_ranks_finish_it() -> None:
    """Two of three say so; of the third nothing was heard after its last step."""
    story = Story()
    g = story.group(start=0, ranks=3, token="one")
    g.steps(1, 4, 10)
    g.stop(15, "finished", ranks=[0])
    g.stop(16, "exited", ranks=[1])
    report = story.report()
    assert report["state"] == "finished"
    assert report["incidents"] == []
    assert gpu_s(report) == {"startup": 30, "productive": 12, "unattributed": 6}


def test_half_is_not_more_than_half() -> None:
    story = Story()
    g = story.group(start=0, ranks=2, token="one")
    g.steps(1, 4, 10)
    g.stop(15, "finished", ranks=[0])
    report = story.report()
    assert report["state"] == "running"
    assert gpu_s(report) == {"startup": 20, "productive": 10}


def test_the_last_to_leave_after_the_abort_is_teardown() -> None:
    """Three of four leave at 20 s, in the middle of step 11; the last one is ended by force 30 s later."""
    story = Story()
    g = story.group(start=0, ranks=4, token="one")
    g.resume(5, None)
    g.steps(1, 10, 9)
    g.stop(20, "signal", ranks=[0, 1, 2])
    g.stop(50, "signal", ranks=[3])
    report = story.report()
    assert gpu_s(report) == {"startup": 36 + 120, "productive": 40, "rework": 4}
    assert phase_s(report, "startup")["teardown"] == 120
    assert report["incidents"][0]["restart_gpu_s"] == 120
    # No checkpoint was ever reported: that the steps were kept is an assumption.
    assert report["quality"]["assumed_gpu_s"] == 40


def test_an_allocation_that_ends_without_a_word_ends_the_attempt() -> None:
    """Granted 3 GPUs from -5 s to 40 s; the two in use step to 30 s, then nothing. Preempted, says the scheduler."""
    story = Story()
    g = story.group(start=0, ranks=2, token="one")
    g.steps(1, 20, 10)
    story.other("slurm").tell(
        "allocation", at(40), job="job", gpus=3, submit_ns=at(-25), start_ns=at(-5), end_ns=at(40), end_reason="timeout"
    )
    report = story.report()
    # 10 s after the last mark is within the limit: the step that never ended.
    assert gpu_s(report) == {"startup": 30, "productive": 40, "rework": 20, "idle": 45}
    assert report["queue_wait_s"] == 20
    assert report["incidents"][0]["cause"] == "preempted"
    assert report["state"] == "failed"


def test_an_allocation_may_grow_and_an_update_replaces_what_was_said() -> None:
    """2 GPUs at first; 5 from 20 s on. The first word on each said otherwise and was taken back."""
    story = Story()
    g = story.group(start=0, ranks=2, token="one")
    g.steps(1, 20, 10)
    g.stop(30, "finished")
    slurm = story.other("slurm")
    slurm.tell("allocation", at(1), job="job", gpus=7, start_ns=at(0), nulls=("end_ns",))
    slurm.tell("allocation", at(2), job="job", gpus=2, start_ns=at(0), nulls=("end_ns",))
    slurm.tell("allocation", at(3), job="job", gpus=9, start_ns=at(20), nulls=("end_ns",))
    slurm.tell("allocation", at(35), job="job", gpus=5, start_ns=at(20), end_ns=at(35))
    report = story.report()
    assert gpu_s(report) == {"startup": 20, "productive": 40, "idle": 10 * 3 + 5 * 5}
    assert report["queue_wait_s"] is None


def test_a_job_without_an_attempt_is_idle() -> None:
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 3, 10)
    g.stop(13, "finished")
    story.other("slurm").tell("allocation", at(60), job="empty", gpus=4, start_ns=at(50), end_ns=at(60), run="story")
    assert gpu_s(story.report()) == {"startup": 10, "productive": 3, "idle": 40}


def test_an_attempt_without_a_step_is_startup_and_never_a_hang() -> None:
    story = Story()
    g = story.group(start=0, ranks=2, token="one")
    g.span("compile", 2, 10)
    g.stop(1000, "exception", ranks=[0])
    g.stop(1000, "signal", ranks=[1])
    report = story.report()
    assert gpu_s(report) == {"startup": 2000}
    assert phase_s(report, "startup") == {"launch": 2, "init": 1982, "compile": 16}
    assert (report["incidents"][0]["cause"], report["incidents"][0]["hang_gpu_s"]) == ("crash", 0)


def test_a_live_attempt_without_a_step_is_hung_after_half_an_hour() -> None:
    story = Story()
    story.group(start=0, token="one")
    assert story.report(now_ns=at(500))["state"] == "running"
    story.other("agent").tell("dropped", at(1801), reason="full", count=1)
    assert story.report()["state"] == "hung"


def test_two_launches_under_one_name_are_two_runs() -> None:
    story = Story()
    a = story.group(start=0, token="one", job="a")
    a.steps(1, 100, 10)
    b = story.group(start=20, token="two", job="b")
    b.steps(1, 90, 30)
    a.stop(110, "finished")
    b.stop(120, "finished")
    first, second = story.report(), story.report(run="story~2")
    assert gpu_s(first) == {"startup": 10, "productive": 100}
    assert gpu_s(second) == {"startup": 10, "productive": 90}
    assert [r["attempts"][0]["job"] for r in (first, second)] == ["a", "b"]
    with pytest.raises(KeyError):
        story.report(run="story~3")


def test_processes_that_know_no_token_are_told_apart_by_rank_and_time() -> None:
    """Rank 1 learned the token, rank 0 died before; two more of the same ranks, without tokens, are a new attempt."""
    story = Story()
    first = story.group(start=0, only=[0], world=2)
    second = story.group(start=1, only=[1], world=2, token="one")
    second.tell("joined", 3, attempt_token="one", rank=1, world_size=2)
    first.stop(8, "exception")
    second.stop(8, "exception")
    again = story.group(start=9, ranks=2)
    again.steps(1, 5, 20)
    again.stop(25, "finished")
    report = story.report()
    assert [a["world_size"] for a in report["attempts"]] == [2, 2]
    assert [a["start_ns"] for a in report["attempts"]] == [at(0), at(9)]
    assert gpu_s(report) == {"startup": 40, "productive": 10}


def test_a_good_end_that_was_left_standing_is_a_hang() -> None:
    """Two of three finished at 20 s; the third raises at 60 s, at a barrier that nobody else comes to."""
    story = Story()
    g = story.group(start=0, ranks=3, token="one")
    g.steps(1, 10, 10)
    g.stop(20, "finished", ranks=[0, 1])
    g.stop(60, "exception", ranks=[2])
    report = story.report()
    assert report["state"] == "finished"
    assert gpu_s(report) == {"startup": 30, "productive": 30, "hang": 120}


def test_what_a_dead_group_still_does_is_no_progress() -> None:
    """Two of three are seen to go at 20 s; the third steps on by itself to 30 s, unheard by the next attempt."""
    story = Story()
    g = story.group(start=0, ranks=3, token="one")
    g.steps(1, 10, 10)
    g.steps(11, 20, 20, ranks=[2])
    agent = story.other("agent")
    agent.tell("exit_observed", at(20), of=g.pens[0].source, signal=9)
    agent.tell("exit_observed", at(20), of=g.pens[1].source, signal=9)
    g = story.group(start=25, ranks=3, token="two")
    g.resume(30, 10)
    g.steps(11, 15, 35)
    g.stop(40, "finished")
    report = story.report()
    assert report["attempts"][0]["last_step"] == 10
    assert gpu_s(report) == {"startup": 30 + 45, "productive": 45}


def test_the_abort_is_when_more_than_half_of_those_that_stopped_had_said_so() -> None:
    """Of five ranks two say it, at 20 and at 22 s; of the others nothing was heard after their last step."""
    story = Story()
    g = story.group(start=0, ranks=5, token="one")
    g.steps(1, 9, 10)
    g.stop(20, "exception", ranks=[0])
    g.stop(22, "exception", ranks=[1])
    report = story.report()
    assert report["attempts"][0]["end_ns"] == at(22)
    assert gpu_s(report) == {"startup": 50, "productive": 45, "rework": 15}


def test_half_of_the_ranks_gone_is_no_majority() -> None:
    """Of four ranks one raises at 20 s, and another's exit is seen at 24 s: the abort was at 20."""
    story = Story()
    g = story.group(start=0, ranks=4, token="one")
    g.steps(1, 10, 10)
    g.stop(20, "exception", ranks=[0])
    story.other("agent").tell("exit_observed", at(24), of=g.pens[1].source, signal=9)
    report = story.report()
    assert report["attempts"][0]["end_ns"] == at(20)
    assert phase_s(report, "startup")["teardown"] == 16
