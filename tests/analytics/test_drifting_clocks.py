"""A clock that is off by another amount in each thousand of steps, and words told in the moment in which that changes.

Ranks 0 and 1 are right, and rank 2's clock is ahead: by 3 s in steps below 1,000, and by 5 s in those from there on.
"""

from __future__ import annotations

import pytest
from agreeing import told

from reference.events import Event
from reference.planned import S
from reference.stories import Story, at

TIMES = ("ts_ns", "start_ns", "end_ns", "process_start_ns")


def drift(story: Story, *, since: float, until: float = 1e6) -> None:
    """Put rank 2's clock 5 s ahead from `since` to `until`, and 3 s before and after."""

    def ahead_ns(true_ns: int) -> int:
        return (5 if at(since) <= true_ns < at(until) else 3) * S

    for event in story.events:
        if event["source"] == "source-03":
            event |= {name: event[name] + ahead_ns(event[name]) for name in TIMES if name in event}


def by_step(event: Event) -> None:
    """The same, of an event of a step: by its number."""
    for name in ("ts_ns", "start_ns", "end_ns"):
        event[name] += (5 if event["step"] >= 1000 else 3) * S


def test_a_span_that_begins_with_the_first_step_of_a_block_has_the_clock_of_that_block() -> None:
    story = Story()
    g = story.group(start=0, ranks=3, token="one")
    g.steps(997, 998, 10)
    g.step(999, 12, 13, ranks=[0, 1])
    g.span("rollout", 13.5, 14, ranks=[2])
    g.steps(1000, 1003, 13.5)
    g.stop(17.5, "finished")
    drift(story, since=13.5)
    assert told(story)["gpu_s"]["unattributed"] == 3 * (0.5 + 0.5)


def test_the_last_word_of_a_block_of_one_moment_has_the_clock_of_that_block() -> None:
    """Rank 2's step 1000 takes no time, and nothing follows."""
    story = Story()
    g = story.group(start=0, ranks=3, token="one")
    g.steps(997, 999, 10)
    g.step(1000, 14, 15, ranks=[0, 1])
    g.step(1000, 15, 15, ranks=[2])
    drift(story, since=14)
    report = told(story)
    assert (report["as_of_ns"], report["quality"]["max_skew_s"]) == (at(15), 5)


def test_who_was_silent_is_told_by_the_clock_of_the_last_block() -> None:
    """As before, and then all hung: the three were last heard of at once, which is no sign of anybody."""
    story = Story()
    g = story.group(start=0, ranks=3, token="one")
    for half in range(4):
        g.tell("heartbeat", 9 + half / 2, step=0, phase="step")
    g.steps(997, 999, 10)
    g.step(1000, 14, 15, ranks=[0, 1])
    g.step(1000, 15, 15, ranks=[2])
    g.stop(115, "signal")
    drift(story, since=14)
    [incident] = told(story)["incidents"]
    assert (incident["cause"], incident["suspect_ranks"]) == ("hang", ())


def test_where_nobody_shared_a_step_the_block_before_says_when_it_ended() -> None:
    """Not the block after, which came before in time: rank 2 went on alone until 23 s, and raised at 27 s."""
    story = Story()
    g = story.group(start=0, ranks=3, token="one")
    g.steps(996, 999, 10)
    g.steps(2000, 2003, 14)
    g.resume(18, 1399)
    g.steps(1400, 1403, 19, ranks=[2])
    g.stop(27, "exception")
    drift(story, since=14, until=18)
    report = told(story)
    assert report["quality"]["max_skew_s"] == 5
    assert report["incidents"][-1]["last_progress_ns"] == at(23)


@pytest.mark.parametrize(("first", "process"), [((999, 1000), 0), ((1000, 999), -2)])
def test_before_all_steps_the_clock_is_that_of_the_first_of_two_blocks_that_begin_together(
    first: tuple[int, int], process: float
) -> None:
    """Rank 2's first step takes no time, and the next begins at once; the second time that is a rollback. It started
    before the others, by the clock that was 3 s ahead."""
    story = Story()
    rest = story.group(start=5, only=[0, 1], world=3, token="one")
    late = story.group(start=0, only=[2], world=3, token="one")
    one, two = first
    rest.step(one, 10, 10)
    rest.step(two, 12, 13)
    rest.steps(1001, 1004, 13)
    late.step(one, 10, 10)
    late.step(two, 10, 13)
    late.steps(1001, 1004, 13)
    rest.stop(17, "finished")
    late.stop(17, "finished")
    for event in story.events:
        if event["source"] != "source-03":
            continue
        if event["kind"] != "step":
            event |= {name: event[name] + 3 * S for name in TIMES if name in event}
        else:
            by_step(event)
            if event["step"] == two:
                event["start_ns"] = at(10) + (3 if one < 1000 else 5) * S
    assert told(story)["attempts"][0]["start_ns"] == at(process)
