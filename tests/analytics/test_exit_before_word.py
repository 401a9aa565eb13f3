"""A process that was seen to go, and then speaks again: nothing that it held may get lost or count twice."""

from __future__ import annotations

import pytest
from comparing import product_report
from loading import loaded

from reference.stories import Story, at


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_new_token_after_the_exit_that_was_seen_balances(ranks: int, goes_on: bool) -> None:
    story = Story()
    group = story.group(start=0, ranks=ranks, token="one")
    group.steps(1, 3, 10)
    if ranks > 1:
        group.stop(30, "exception", ranks=range(1, ranks))
    story.other("agent").tell("exit_observed", at(30), of="source-01", signal=9)
    group.tell("joined", 40, ranks=[0], attempt_token="two", rank=0, world_size=ranks)
    if goes_on:
        group.steps(4, 5, 41, ranks=[0])
    with loaded(story.events) as con:
        report = product_report(con, story.run)
    assert sum(report["gpu_s"].values()) == pytest.approx(report["allocated_gpu_s"])
    assert report["allocated_gpu_s"] >= 30 * ranks
