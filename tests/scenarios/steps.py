"""What lies in and between steps: slow ranks, input, spans, stalls, clocks."""

from __future__ import annotations

from scenario import Right, scenario

from reference.stories import Story


@scenario(
    Right(
        state="finished",
        # Rank 3 works half a second longer than the others in thirty of forty steps of two seconds.
        gpu_s={"startup": 40, "productive": 260, "straggler": 60},
        phases={"straggler": {"rank": 60}},
        stragglers=({"rank": 3, "node": "node-3", "loss_gpu_s": 60, "slowest_steps": 30, "slowdown_ratio": 1.5},),
        findings=("straggler",),
        at_risk_gpu_s=None,
    )
)
def one_rank_is_slow(story: Story) -> None:
    only = story.group(start=0, ranks=4, token="a")
    for n in range(1, 41):
        slow = 1.5 if 5 <= n < 35 else 1.0
        only.step(n, 10 + 2 * (n - 1), 10 + 2 * n, busy={0: 1.0, 1: 1.0, 2: 1.0, 3: slow})
    only.stop(90, "finished")


@scenario(
    Right(
        state="finished",
        gpu_s={"startup": 40, "productive": 240, "straggler": 80},
        phases={"straggler": {"jitter": 80}},
        stragglers=(),
        findings=("straggler",),
        at_risk_gpu_s=None,
    )
)
def every_rank_is_slow_in_turn(story: Story) -> None:
    only = story.group(start=0, ranks=4, token="a")
    for n in range(1, 41):
        busy = dict.fromkeys(range(4), 1.0) | {n % 4: 1.5}
        only.step(n, 10 + 2 * (n - 1), 10 + 2 * n, busy=busy)
    only.stop(90, "finished")


@scenario(
    Right(
        state="finished",
        # One rank starts its steps a second late: its gap tells, though nobody says how long it worked.
        gpu_s={"startup": 30, "productive": 51, "straggler": 24},
        phases={"straggler": {"rank": 24}},
        stragglers=({"rank": 1, "loss_gpu_s": 24, "slowest_steps": 8, "slowdown_ratio": None},),
        at_risk_gpu_s=None,
    )
)
def one_rank_comes_late(story: Story) -> None:
    only = story.group(start=0, ranks=3, token="a")
    now = only.steps(1, 5, 10)
    for n in range(6, 14):
        only.step(n, now, now + 2, ranks=[0, 2])
        only.step(n, now + 1, now + 2, ranks=[1])
        now += 2
    now = only.steps(14, 17, now)
    only.stop(now, "finished")


@scenario(
    Right(
        state="finished",
        gpu_s={
            "startup": 14,
            "productive": 16,
            "data_wait": 3,
            "unattributed": 6,
            "evaluation": 20,
            "checkpoint": 3,
        },
        phases={
            "startup": {"launch": 1, "init": 9, "compile": 4},
            "unattributed": {"tidying": 4},
        },
        at_risk_gpu_s=None,
    )
)
def everything_that_may_lie_between_steps(story: Story) -> None:
    only = story.group(start=0, token="a")
    now = only.steps(1, 5, 10)
    only.step(6, now, now + 4, data_ns=3_000_000_000)
    only.step(7, now + 6, now + 7)
    only.span("evaluation", now + 7, now + 27, step=7)
    only.step(8, now + 27, now + 28)
    only.span("upload", now + 28, now + 31, category="checkpoint")
    only.step(9, now + 31, now + 32)
    only.span("tidying", now + 32, now + 36)
    only.step(10, now + 36, now + 37)
    only.span("rollout", now + 37, now + 43, category="productive")
    only.span("compile", now + 43, now + 47)
    only.stop(now + 47, "finished")


@scenario(
    Right(
        state="finished",
        gpu_s={"startup": 13, "productive": 40, "hang": 99},
        phases={"startup": {"launch": 1, "init": 9, "warmup": 3}, "hang": {"step": 99}},
        findings=("hang",),
        at_risk_gpu_s=None,
    )
)
def a_stall_that_passed_and_a_long_first_step(story: Story) -> None:
    only = story.group(start=0, token="a")
    only.step(1, 10, 14)
    now = only.steps(2, 20, 14)
    only.step(21, now, now + 100)
    now = only.steps(22, 40, now + 100)
    only.stop(now, "finished")


@scenario(
    Right(
        state="finished",
        # Events of five steps each; two of the last five events were not applied.
        gpu_s={"startup": 10, "productive": 40, "rework": 10, "unattributed": 2},
        phases={"rework": {"skipped": 10}},
        attempts=({"first_step": 1, "last_step": 50},),
        findings=("steps_skipped",),
        at_risk_gpu_s=None,
    )
)
def events_of_five_steps_some_not_applied(story: Story) -> None:
    only = story.group(start=0, token="a")
    now = 10.0
    for n in range(5, 51, 5):
        only.step(n, now, now + 5, count=5, applied=False if n in (30, 45) else None)
        now += 5
    only.stop(now + 2, "finished")


@scenario(
    Right(
        state="finished",
        # The third clock is 30 s ahead; the others agree. Nothing of it shows but the skew itself.
        gpu_s={"startup": 30, "productive": 60, "checkpoint": 6},
        checkpoints={"count": 1, "mean_blocking_s": 2},
        quality={"max_skew_s": 30},
        findings=("clock_skew",),
    )
)
def a_clock_that_is_ahead(story: Story) -> None:
    only = story.group(start=0, ranks=3, token="a", ahead={2: 30})
    only.steps(1, 10, 10)
    only.span("checkpoint", 20, 22, step=10)
    only.steps(11, 20, 22)
    only.stop(32, "finished")


ALL = (
    one_rank_is_slow,
    every_rank_is_slow_in_turn,
    one_rank_comes_late,
    everything_that_may_lie_between_steps,
    a_stall_that_passed_and_a_long_first_step,
    events_of_five_steps_some_not_applied,
    a_clock_that_is_ahead,
)
