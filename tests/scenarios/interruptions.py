"""Runs that were interrupted: each kind of incident, and what it cost."""

from __future__ import annotations

from math import sqrt

from scenario import Right, grant, scenario

from reference.stories import Story, at


@scenario(
    Right(
        state="finished",
        # Four GPUs. Startup: 10 s, then 4 s between the two attempts and 8 s more. Ten steps and a second thrown away.
        gpu_s={"startup": 88, "productive": 120, "checkpoint": 20, "rework": 44},
        phases={"startup": {"launch": 8, "init": 64, "restart": 16}},
        incidents=(
            {
                "attempt": 0,
                "cause": "crash",
                "last_progress_ns": at(35),
                "abort_ns": at(36),
                "detection_s": 1,
                "recovered_ns": at(48),
                "lost_steps": 10,
                "hang_gpu_s": 0,
                "rework_gpu_s": 44,
                "restart_gpu_s": 48,
                "suspect_ranks": [2],
            },
        ),
        attempts=(
            {"end_cause": "crash", "first_step": 1, "last_step": 20, "start_ns": at(0), "end_ns": at(36)},
            {"end_cause": "finished", "resume_step": 10, "first_step": 11, "last_step": 30, "end_ns": at(68)},
        ),
        # Running time: 10 to 36 and 48 to 68.
        checkpoints={
            "count": 1,
            "failed": 0,
            "mean_blocking_s": 5,
            "mean_interval_s": None,
            "mtbf_s": 46,
            "young_s": sqrt(2 * 5 * 46),
        },
        quality={"assumed_gpu_s": 16, "gaps": 0, "silent_ranks": []},
        findings=("rework", "startup", "checkpoint", "assumed"),
    )
)
def a_rank_raises_and_its_peers_follow(story: Story) -> None:
    first = story.group(start=0, ranks=4, token="a", restart_count=0)
    first.steps(1, 10, 10)
    first.span("checkpoint", 20, 25, step=10)
    first.steps(11, 20, 25)
    first.stop(35.5, "exception", ranks=[2])
    first.stop(36, "exception", ranks=[0, 1, 3])
    second = story.group(start=40, ranks=4, token="b", restart_count=1)
    second.resume(47, 10)
    second.steps(11, 30, 48)
    second.stop(68, "finished")


@scenario(
    Right(
        state="finished",
        # Two ranks drive two GPUs each, of six granted: from -5 to 100 and from 130 to 190.
        gpu_s={"startup": 100, "productive": 160, "rework": 80, "hang": 260, "idle": 390},
        phases={"hang": {"step": 260}},
        incidents=(
            {
                "cause": "hang",
                "last_progress_ns": at(30),
                "abort_ns": at(95),
                "detection_s": 65,
                "recovered_ns": at(140),
                "lost_steps": 20,
                "hang_gpu_s": 260,
                "rework_gpu_s": 80,
                "restart_gpu_s": 40,
                "suspect_ranks": [1],
            },
        ),
        attempts=({"job": "one", "end_cause": "hang"}, {"job": "two", "resume_step": None, "first_step": 1}),
        queue_wait_s=125,
        quality={"assumed_gpu_s": 0},
        findings=("hang", "idle"),
        at_risk_gpu_s=None,
    )
)
def a_silent_rank_hangs_the_job_until_a_timeout(story: Story) -> None:
    grant(story, "one", 6, submit=-100, start=-5, end=100, reason="failed")
    grant(story, "two", 6, submit=100, start=130, end=190, reason="completed")
    first = story.group(start=0, ranks=2, token="a", job="one", devices=2)
    first.resume(9, None)
    first.steps(1, 20, 10)
    first.tell("heartbeat", 31, ranks=[1], step=20, phase="step")
    for when in range(31, 90, 5):
        first.tell("heartbeat", when, ranks=[0], step=20, phase="waiting")
    first.stop(90, "exception", ranks=[0])
    story.other("agent").tell("exit_observed", at(95), of="source-02", signal=9)
    second = story.group(start=132, ranks=2, token="b", job="two", devices=2)
    second.resume(139, None)
    second.steps(1, 40, 140)
    second.stop(180, "finished")


@scenario(
    Right(
        state="finished",
        # Between the two jobs nothing is held.
        gpu_s={"startup": 20, "productive": 40, "checkpoint": 2},
        incidents=(
            {
                "cause": "preempted",
                "abort_ns": at(42),
                "detection_s": 0,
                "recovered_ns": at(110),
                "lost_steps": 0,
                "rework_gpu_s": 0,
                "restart_gpu_s": 10,
                "suspect_ranks": [],
            },
        ),
        checkpoints={"count": 1, "mean_blocking_s": 2, "mtbf_s": None, "young_s": None, "daly_s": None},
        quality={"assumed_gpu_s": 0},
    )
)
def preempted_after_a_save_and_requeued(story: Story) -> None:
    first = story.group(start=0, token="a", job="one")
    first.steps(1, 30, 10)
    first.span("checkpoint", 40, 42, step=30)
    first.stop(42, "preempted")
    second = story.group(start=100, token="b", job="two")
    second.resume(105, 30)
    second.steps(31, 40, 110)
    second.stop(120, "finished")


@scenario(
    Right(
        state="finished",
        gpu_s={"startup": 17, "productive": 30, "rework": 3, "hang": 100},
        phases={"hang": {"silent": 100}},
        incidents=(
            {
                "cause": "hang",
                "abort_ns": at(33),
                "detection_s": 103,
                "recovered_ns": at(140),
                "lost_steps": 0,
                "hang_gpu_s": 100,
                "rework_gpu_s": 3,
                "restart_gpu_s": 7,
            },
        ),
        attempts=({"end_cause": "hang", "end_ns": at(33)}, {"resume_step": 20}),
        quality={"assumed_gpu_s": 100},
        at_risk_gpu_s=None,
    )
)
def nobody_says_that_it_died_for_long(story: Story) -> None:
    first = story.group(start=0, token="a")
    first.steps(1, 20, 10)
    first.tell("heartbeat", 33, step=20, phase="step")
    second = story.group(start=133, token="b")
    second.steps(21, 30, 140)
    second.stop(150, "finished")


@scenario(
    Right(
        state="finished",
        gpu_s={"startup": 77, "productive": 30, "rework": 3},
        phases={"startup": {"launch": 2, "init": 15, "restart": 60}},
        incidents=({"cause": "lost", "detection_s": 3, "hang_gpu_s": 0, "rework_gpu_s": 3, "restart_gpu_s": 67},),
        quality={"assumed_gpu_s": 60},
        at_risk_gpu_s=None,
    )
)
def nobody_says_that_it_died_for_a_minute(story: Story) -> None:
    first = story.group(start=0, token="a")
    first.steps(1, 20, 10)
    first.tell("heartbeat", 33, step=20, phase="step")
    second = story.group(start=93, token="b")
    second.steps(21, 30, 100)
    second.stop(110, "finished")


@scenario(
    Right(
        state="finished",
        gpu_s={"startup": 14, "productive": 25, "checkpoint": 2, "rework": 10},
        phases={"startup": {"launch": 1, "init": 9, "restart": 4}},
        incidents=(
            {
                "attempt": 0,
                "cause": "rollback",
                "last_progress_ns": at(32),
                "abort_ns": at(32),
                "detection_s": 0,
                "recovered_ns": at(36),
                "lost_steps": 10,
                "hang_gpu_s": 0,
                "rework_gpu_s": 10,
                "restart_gpu_s": 4,
                "suspect_ranks": [],
            },
        ),
        attempts=({"end_cause": "finished", "first_step": 1, "last_step": 25},),
        checkpoints={"count": 1, "mtbf_s": None},
    )
)
def back_to_the_save_inside_an_attempt(story: Story) -> None:
    only = story.group(start=0, token="a")
    only.steps(1, 10, 10)
    only.span("checkpoint", 20, 22, step=10)
    only.steps(11, 20, 22)
    only.resume(34, 10)
    only.steps(11, 25, 36)
    only.stop(51, "finished")


@scenario(
    Right(
        state="failed",
        gpu_s={"startup": 10, "productive": 10, "checkpoint": 3, "rework": 14},
        incidents=({"cause": "crash", "lost_steps": 10, "rework_gpu_s": 14, "restart_gpu_s": 0, "recovered_ns": None},),
        checkpoints={"count": 1, "failed": 0},
    )
)
def killed_for_good(story: Story) -> None:
    only = story.group(start=0, token="a")
    only.steps(1, 10, 10)
    only.span("checkpoint", 20, 23, step=10)
    only.steps(11, 20, 23)
    only.stop(37, "signal")


@scenario(
    Right(
        state="failed",
        # Of the two seconds a step each has made, none is called lost: no checkpoint was ever spoken of.
        gpu_s={"startup": 10, "productive": 20, "rework": 4},
        incidents=({"cause": "crash", "lost_steps": 0, "rework_gpu_s": 4},),
        quality={"assumed_gpu_s": 20},
        at_risk_gpu_s=None,
    )
)
def killed_for_good_without_any_checkpoint(story: Story) -> None:
    only = story.group(start=0, token="a")
    only.steps(1, 20, 10)
    only.stop(34, "signal")


@scenario(
    Right(
        state="finished",
        # The save that never ended hung for 70 s, beyond its minute; the save after step 5 is what was left.
        gpu_s={"startup": 20, "productive": 15, "checkpoint": 2, "rework": 5, "hang": 70},
        phases={"hang": {"checkpoint": 70}},
        incidents=({"cause": "hang", "detection_s": 70, "hang_gpu_s": 70, "lost_steps": 5, "rework_gpu_s": 5},),
        attempts=({"end_cause": "hang"}, {"resume_step": 5}),
        checkpoints={"count": 1, "failed": 1, "mean_blocking_s": 2, "mean_interval_s": 7},
        findings=("saves_failed", "hang"),
    )
)
def killed_in_a_save_that_never_ended(story: Story) -> None:
    first = story.group(start=0, token="a", job="one")
    first.steps(1, 5, 10)
    first.span("checkpoint", 15, 17, step=5)
    first.steps(6, 10, 17)
    first.span("checkpoint", 22, None, step=10)
    first.stop(92, "signal")
    second = story.group(start=200, token="b", job="two")
    second.resume(205, 5)
    second.steps(6, 15, 210)
    second.stop(220, "finished")


@scenario(
    Right(
        state="finished",
        # The background save of step 10 was never safe: the next attempt goes on from step 5.
        gpu_s={"startup": 20, "productive": 15, "checkpoint": 3, "rework": 8},
        incidents=({"cause": "crash", "lost_steps": 8, "rework_gpu_s": 8},),
        checkpoints={"count": 1, "failed": 1, "mean_blocking_s": 1, "mean_interval_s": 6},
    )
)
def a_background_save_that_never_became_safe(story: Story) -> None:
    first = story.group(start=0, token="a", job="one")
    first.steps(1, 5, 10)
    first.span("checkpoint", 15, 16, step=5, background=True)
    first.steps(6, 10, 16)
    first.tell("durable", 18, step=5, ok=True)
    first.span("checkpoint", 21, 23, step=10, background=True)
    first.steps(11, 13, 23)
    first.stop(26, "exception")
    second = story.group(start=200, token="b", job="two")
    second.resume(205, 5)
    second.steps(6, 15, 210)
    second.stop(220, "finished")


@scenario(
    Right(
        state="finished",
        # A second token in one source. The last proof of progress came a second after the last step, in nothing.
        gpu_s={"startup": 34, "productive": 40, "rework": 20, "unattributed": 2},
        phases={"startup": {"launch": 2, "init": 28, "restart": 4}},
        incidents=({"cause": "lost", "lost_steps": 10, "rework_gpu_s": 20, "restart_gpu_s": 14},),
        attempts=({"end_cause": "lost", "last_step": 20}, {"resume_step": 10, "last_step": 20}),
        at_risk_gpu_s=0.0,
    )
)
def restarted_inside_its_processes(story: Story) -> None:
    only = story.group(start=0, ranks=2)
    only.tell("joined", 2, attempt_token="a", rank=0, world_size=2)
    only.steps(1, 20, 10)
    only.tell("progress", 31)
    only.tell("joined", 33, attempt_token="b", rank=0, world_size=2)
    only.resume(35, 10)
    only.steps(11, 20, 38)
    only.stop(48, "finished")


ALL = (
    a_rank_raises_and_its_peers_follow,
    a_silent_rank_hangs_the_job_until_a_timeout,
    preempted_after_a_save_and_requeued,
    nobody_says_that_it_died_for_long,
    nobody_says_that_it_died_for_a_minute,
    back_to_the_save_inside_an_attempt,
    killed_for_good,
    killed_for_good_without_any_checkpoint,
    killed_in_a_save_that_never_ended,
    a_background_save_that_never_became_safe,
    restarted_inside_its_processes,
)
