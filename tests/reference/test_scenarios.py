"""Small runs whose right figures were worked out by hand, one rule each."""

from __future__ import annotations

import pytest

from goodput_analytics.settings import Settings

from .planned import S
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


def test_steps_whose_events_are_missing_are_assumed() -> None:
    """Events of steps 5 to 7 are lost: the window of step 8 stands for four steps and is no hang."""
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 4, 10)
    g.step(8, 17, 18)
    g.steps(9, 12, 18)
    g.stop(22, "finished")
    report = story.report()
    assert report["quality"]["missing_steps"] == 3
    assert gpu_s(report) == {"startup": 10, "productive": 12}


def test_a_save_goes_before_an_evaluation_and_the_later_begun_before_the_earlier() -> None:
    """Between two steps, 20 to 30 s: rank 0 evaluates, rank 1 saves from 22 to 25, and tidies from 28 to 34."""
    story = Story()
    g = story.group(start=0, ranks=2, token="one")
    g.steps(1, 10, 10)
    g.span("evaluation", 20, 30, ranks=[0], step=10)
    g.span("checkpoint", 22, 25, ranks=[1], step=10)
    g.span("tidying", 28, 34, ranks=[1])
    g.span("sweeping", 31, 33, ranks=[0], category="data_wait")
    g.steps(11, 20, 34)
    g.stop(44, "finished")
    report = story.report()
    assert gpu_s(report) == {
        "startup": 20,
        "productive": 40,
        "checkpoint": 6,
        "evaluation": 14,
        "unattributed": 4,
        "data_wait": 4,
    }


def test_a_span_that_nobody_ended_ends_with_the_next_step() -> None:
    story = Story()
    g = story.group(start=0, ranks=2, token="one")
    g.steps(1, 10, 10)
    g.span("evaluation", 20, None, step=10)
    g.steps(11, 20, 25)
    g.stop(35, "finished")
    assert gpu_s(story.report()) == {"startup": 20, "productive": 40, "evaluation": 10}


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


@pytest.mark.parametrize(
    ("phases", "state", "category"),
    [(["between", "between"], "paused", "unattributed"), (["between", "step"], "hung", "hang")],
)
def test_a_live_run_that_stands_still_between_steps_may_be_saving(phases: list[str], state: str, category: str) -> None:
    story = Story()
    g = story.group(start=0, ranks=2, token="one")
    g.steps(1, 10, 10)
    for rank, phase in enumerate(phases):
        g.tell("heartbeat", 50, ranks=[rank], step=10, phase=phase)
    report = story.report()
    assert report["state"] == state
    assert gpu_s(report) == {"startup": 20, "productive": 20, category: 60}


def test_a_live_run_is_lost_when_the_collector_has_not_heard_of_it_for_long() -> None:
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 10, 10)
    assert story.report()["state"] == "running"
    assert story.report(now_ns=at(620))["state"] == "hung"
    report = story.report(now_ns=at(621))
    assert (report["state"], report["as_of_ns"]) == ("lost", at(621))
    assert gpu_s(report) == {"startup": 10, "productive": 10, "hang": 601}


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


def test_what_the_first_step_has_beyond_a_normal_one_is_warm_up() -> None:
    """The later windows take 1, 1, 2 and 3 s: the median is the mean of the middle two, 1.5 s."""
    story = Story()
    g = story.group(start=0, token="one")
    g.step(1, 10, 18)
    g.step(2, 18, 19)
    g.step(3, 19, 21)
    g.step(4, 21, 24)
    g.step(5, 24, 25)
    g.stop(25, "finished")
    report = story.report()
    assert phase_s(report, "startup") == {"launch": 1, "init": 9, "warmup": 6.5}
    assert gpu_s(report) == {"startup": 16.5, "productive": 8.5}


def test_what_a_step_takes_beyond_the_expected_is_jitter() -> None:
    """Expected 0.8 s; steps take 1 s, of which 0.1 s wait for input: 0.1 s is left to explain."""
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 10, 10, data_ns=S // 10)
    g.stop(20, "finished")
    report = story.report(settings=Settings(expected_step_ns=8 * S // 10))
    assert report["_gpu_ns"]["straggler"] == S
    assert report["_gpu_ns"]["data_wait"] == S
    assert report["_gpu_ns"]["productive"] == 8 * S
    assert phase_s(report, "straggler") == {"jitter": 1}


@pytest.mark.parametrize(("reporting", "straggler_s"), [([2, 3], 0.3 * 4 * 10), ([3], 0)])
def test_own_work_counts_if_half_of_the_ranks_report_it(reporting: list[int], straggler_s: float) -> None:
    """Of two that report, the later one is 0.3 s behind the earlier; one alone says nothing of the others."""
    story = Story()
    g = story.group(start=0, ranks=4, token="one")
    busy = {2: 0.6, 3: 0.9}
    g.steps(1, 10, 10, busy={r: busy[r] for r in reporting})
    g.stop(20, "finished")
    assert story.report()["gpu_s"]["straggler"] == pytest.approx(straggler_s)


def test_a_late_starter_is_named_by_its_gaps() -> None:
    """Rank 2 of three begins each step 0.25 s after the others; all end together. Six such steps are enough."""
    story = Story()
    g = story.group(start=0, ranks=3, token="one")
    g.step(1, 10, 11)
    for n in range(6):
        g.step(n + 2, 11 + n, 12 + n, ranks=[0, 1])
        g.step(n + 2, 11.25 + n, 12 + n, ranks=[2])
    g.stop(17, "finished")
    report = story.report()
    assert gpu_s(report) == {"startup": 30, "productive": 21 - 4.5, "straggler": 4.5}
    [row] = report["stragglers"]
    assert (row["rank"], row["node"], row["slowest_steps"], row["loss_gpu_s"]) == (2, "node-2", 6, 4.5)
    assert phase_s(report, "straggler") == {"rank": 4.5}


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


def test_events_of_one_step_in_a_row_are_one_step() -> None:
    """Micro-batches: what they wait for input adds up."""
    story = Story()
    g = story.group(start=0, token="one")
    time = 10.0
    for n in range(1, 6):
        for _ in range(4):
            g.step(n, time, time + 0.5, data_ns=S // 10)
            time += 0.5
    g.stop(20, "finished")
    report = story.report()
    assert report["_gpu_ns"]["data_wait"] == 2 * S
    assert report["_gpu_ns"]["productive"] == 8 * S
    assert report["attempts"][0]["last_step"] == 5


def test_a_clock_is_corrected_for_each_block_of_steps() -> None:
    """Rank 1's clock is 3 s ahead up to step 999 and 5 s ahead from step 1000 on (it was restarted with another)."""
    story = Story()
    a = story.group(start=0, ranks=2, token="one", ahead={1: 3})
    a.steps(995, 999, 10)
    a.pens[1].ahead_ns = 5 * S
    a.steps(1000, 1010, 15)
    a.stop(26, "finished")
    report = story.report()
    assert report["quality"]["max_skew_s"] == 5
    assert report["allocated_gpu_s"] == 52
    assert report["gpu_s"]["startup"] == 20
    assert report["attempts"][0]["end_ns"] == at(26)


def test_an_end_before_its_start_counts_as_zero() -> None:
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 5, 10)
    g.pens[0].tell("step", at(15), step=6, start_ns=at(15), end_ns=at(14))
    g.steps(7, 9, 15)
    g.stop(18, "finished")
    report = story.report()
    assert report["quality"]["negative_durations"] == 1
    assert gpu_s(report) == {"startup": 10, "productive": 8}


def test_who_had_not_reached_the_phase_of_the_others_is_suspect() -> None:
    """All speak up to the abort of a hang; rank 1 alone is still waiting for input."""
    story = Story()
    g = story.group(start=0, ranks=3, token="one")
    g.steps(1, 10, 10)
    for n in range(5):
        for rank in range(3):
            phase = "between" if rank == 1 else "step"
            g.tell("heartbeat", 25 + 5 * n, ranks=[rank], step=10, phase=phase)
    g.stop(48, "exception")
    report = story.report()
    assert report["incidents"][0]["cause"] == "hang"
    assert report["incidents"][0]["suspect_ranks"] == [1]
    assert gpu_s(report) == {"startup": 30, "productive": 30, "hang": 84}


def test_a_heartbeat_whose_step_has_advanced_is_a_mark() -> None:
    """The event of step 11 never came, but a heartbeat at 25 s knows of it: only 15 s were without progress."""
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 10, 10)
    g.tell("heartbeat", 22, step=10, phase="step")
    g.tell("heartbeat", 25, step=11, phase="step")
    g.tell("heartbeat", 30, step=11, phase="step")
    g.stop(40, "exception")
    report = story.report()
    assert report["incidents"][0]["detection_s"] == 15
    assert gpu_s(report) == {"startup": 10, "productive": 10, "unattributed": 5, "hang": 15}


@pytest.mark.parametrize(("dies_after_s", "category"), [(90, "checkpoint"), (91, "hang")])
def test_an_open_span_is_measured_by_its_like(dies_after_s: int, category: str) -> None:
    """A save took 30 s before; the next is no hang up to three times that."""
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 10, 10)
    g.span("checkpoint", 20, 50, step=10)
    g.steps(11, 20, 50)
    g.span("checkpoint", 60, None, step=20)
    g.stop(60 + dies_after_s, "signal")
    report = story.report()
    expected = {"startup": 10, "productive": 10, "rework": 10, "checkpoint": 30, category: float(dies_after_s)}
    if category == "checkpoint":
        expected["checkpoint"] = 30 + dies_after_s
    assert gpu_s(report) == expected
    assert report["incidents"][0]["cause"] == ("hang" if category == "hang" else "crash")


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
