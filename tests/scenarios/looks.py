"""Runs that go on while somebody looks, and runs that end well."""

from __future__ import annotations

from scenario import Right, Scenario, grant, scenario

from reference.stories import Story, at


@scenario(
    Right(
        state="finished",
        gpu_s={"startup": 20, "productive": 40},
        phases={"startup": {"launch": 2, "rendezvous": 8, "init": 10}},
        attempts=(
            {
                "attempt": 0,
                "job": "job",
                "world_size": 2,
                "start_ns": at(0),
                "end_ns": at(30),
                "end_cause": "finished",
                "resume_step": None,
                "first_step": 1,
                "last_step": 20,
            },
        ),
        checkpoints={"count": 0, "failed": 0, "mean_blocking_s": None, "mtbf_s": None},
        quality={"events": 50, "gaps": 0, "duplicates": 0, "max_skew_s": 0, "assumed_gpu_s": 0},
        at_risk_gpu_s=None,
    )
)
def nothing_goes_wrong(story: Story) -> None:
    only = story.group(start=0, ranks=2, token="a")
    only.span("rendezvous", 2, 6)
    only.resume(9, None)
    only.steps(1, 20, 10)
    only.stop(30, "finished")


@scenario(
    Right(
        state="hung",
        gpu_s={"startup": 20, "productive": 40, "checkpoint": 4, "hang": 140},
        phases={"hang": {"step": 140}},
        attempts=({"end_cause": "live", "end_ns": None},),
        at_risk_gpu_s=20,
        findings=("hang",),
    )
)
def hung_while_somebody_looks(story: Story) -> None:
    only = story.group(start=0, ranks=2, token="a")
    only.steps(1, 10, 10)
    only.span("checkpoint", 20, 22, step=10)
    only.steps(11, 20, 22)
    for when in range(35, 103, 5):
        only.tell("heartbeat", when, step=20, phase="step")
    only.tell("heartbeat", 102, step=20, phase="step")


@scenario(
    Right(
        state="paused",
        gpu_s={"startup": 20, "productive": 40, "unattributed": 140},
        at_risk_gpu_s=None,
    )
)
def between_two_steps_for_long(story: Story) -> None:
    only = story.group(start=0, ranks=2, token="a")
    only.steps(1, 20, 10)
    only.tell("heartbeat", 100, step=20, phase="between")


@scenario(
    Right(
        state="running",
        # The step that is being made counts as productive while it is young; at risk are those that were made.
        gpu_s={"startup": 10, "productive": 24, "checkpoint": 2, "idle": 72},
        at_risk_gpu_s=10,
        queue_wait_s=40,
        attempts=({"end_cause": "live", "end_ns": None, "last_step": 20},),
    )
)
def running_in_a_larger_grant(story: Story) -> None:
    grant(story, "job", 3, submit=-42, start=-2, end=None)
    only = story.group(start=0, token="a")
    only.steps(1, 10, 8)
    only.span("checkpoint", 18, 20, step=10)
    only.steps(11, 20, 20)
    only.tell("heartbeat", 34, step=20, phase="step")


@scenario(
    Right(
        state="running",
        gpu_s={"startup": 30},
        phases={"startup": {"launch": 1, "load_checkpoint": 29}},
        attempts=({"first_step": None, "last_step": None, "resume_step": None, "end_cause": "live"},),
        at_risk_gpu_s=None,
    )
)
def not_yet_at_its_first_step(story: Story) -> None:
    only = story.group(start=0, token="a")
    only.span("load_checkpoint", 1, None)
    only.tell("heartbeat", 30, phase="load_checkpoint")


def side_by_side(story: Story) -> None:
    """Both make progress from 15 to 85."""
    one = story.group(start=0, token="a", job="one")
    two = story.group(start=5, token="b", job="two", devices=2)
    one.steps(1, 90, 10)
    two.steps(1, 7, 15, 10)
    one.stop(100, "finished")
    two.stop(85, "finished")


first_of_two_launches_under_one_name = Scenario(
    name="first_of_two_launches_under_one_name",
    tell=side_by_side,
    right=Right(
        state="finished",
        gpu_s={"startup": 10, "productive": 90},
        attempts=({"job": "one"},),
        findings=("two_launches",),
        at_risk_gpu_s=None,
    ),
)
second_of_two_launches_under_one_name = Scenario(
    name="second_of_two_launches_under_one_name",
    tell=side_by_side,
    right=Right(
        state="finished",
        gpu_s={"startup": 20, "productive": 140},
        attempts=({"job": "two"},),
        findings=("two_launches",),
        at_risk_gpu_s=None,
    ),
    run="story~2",
)


ALL = (
    nothing_goes_wrong,
    hung_while_somebody_looks,
    between_two_steps_for_long,
    running_in_a_larger_grant,
    not_yet_at_its_first_step,
    first_of_two_launches_under_one_name,
    second_of_two_launches_under_one_name,
)
