"""The finding `resume_discontinuity`: a training that does not go on as it was after a resume."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from loading import loaded

from goodput_analytics import Finding, Settings, report
from reference.stories import Story


def falling(step: int) -> float:
    """A loss that falls, with a little noise."""
    return 10 / (1 + step / 50) + 0.01 * ((step * 7919) % 13 - 6)


def crashed_and_resumed(
    *, resume: int, later: Callable[[int], float | None], first: Callable[[int], float | None] = falling, ranks: int = 1
) -> Story:
    """Sixty steps, a crash, and forty more from the step it resumed from."""
    story = Story()
    one = story.group(start=0, token="a", ranks=ranks)
    one.resume(5, None)
    for step in range(1, 61):
        one.step(step, 10 + step, 11 + step, loss=first(step))
    one.stop(75, "exception")
    two = story.group(start=100, token="b", ranks=ranks)
    two.resume(105, resume)
    for step in range(resume + 1, resume + 41):
        two.step(step, 110 + step, 111 + step, loss=later(step))
    two.stop(400, "finished")
    return story


def finding(story: Story, settings: Settings | None = None) -> Finding | None:
    with loaded(story.events) as con:
        found = {f.code: f for f in report(con, story.run, settings=settings).findings}
    return found.get("resume_discontinuity")


def test_steps_computed_twice_with_another_loss_are_told() -> None:
    told = finding(crashed_and_resumed(resume=40, later=lambda step: falling(step) * 1.01))
    assert told is not None
    assert told.gpu_s is None
    assert told.says == "After 1 resume the training did not go on as it was."
    assert told.evidence == (
        f"In attempt 1, 20 of 20 steps computed twice came out otherwise: step 41 had loss {falling(41):.6g}, "
        f"then {falling(41) * 1.01:.6g}."
    )
    assert "optimizer" in told.next


@pytest.mark.parametrize("off", [0.0, 0.0009, -0.0009])
def test_steps_that_come_out_alike_are_not(off: float) -> None:
    assert finding(crashed_and_resumed(resume=40, later=lambda step: falling(step) * (1 + off))) is None


def test_more_than_half_of_them_must_differ() -> None:
    def of_twenty(differing: int) -> Callable[[int], float]:
        return lambda step: falling(step) * (2 if 40 < step <= 40 + differing else 1)

    assert finding(crashed_and_resumed(resume=40, later=of_twenty(10))) is None
    assert finding(crashed_and_resumed(resume=40, later=of_twenty(11))) is not None


def test_the_tolerance_is_a_setting() -> None:
    story = crashed_and_resumed(resume=40, later=lambda step: falling(step) * 1.01)
    assert finding(story, Settings(loss_tolerance_ratio=0.02)) is None


def test_a_jump_where_no_step_was_computed_twice() -> None:
    told = finding(crashed_and_resumed(resume=60, later=lambda step: falling(step) + 3))
    assert told is not None
    assert told.evidence.startswith("In attempt 1 the loss jumped at step 61, the first after the resume, from ")


@pytest.mark.parametrize(
    "later",
    [
        falling,
        lambda step: falling(step) + 0.05,  # within what it changes by from step to step
        lambda step: None,
        lambda step: float("nan"),
    ],
)
def test_no_jump(later: Callable[[int], float | None]) -> None:
    assert finding(crashed_and_resumed(resume=60, later=later)) is None


def test_few_steps_before_tell_no_jump() -> None:
    def late(step: int) -> float | None:
        return falling(step) if step > 52 else None

    assert finding(crashed_and_resumed(resume=60, first=late, later=lambda step: falling(step) + 3)) is None


def test_the_lowest_rank_that_tells_losses_speaks() -> None:
    story = crashed_and_resumed(resume=40, later=falling, ranks=3)
    for event in story.events:
        if event["kind"] == "step":
            rank = (int(event["source"].removeprefix("source-")) - 1) % 3
            if rank == 0:
                event["loss"] = None
            elif rank == 2:
                event["loss"] = float(event["end_ns"] % 97)
    assert finding(story) is None


def test_without_losses_nothing_is_said() -> None:
    assert finding(crashed_and_resumed(resume=40, first=lambda step: None, later=lambda step: None)) is None
