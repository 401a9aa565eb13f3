"""Small runs worked out by hand: steps, spans, and how a window is divided."""

from __future__ import annotations

import pytest

from goodput_analytics.settings import Settings

from .planned import S
from .stories import Story, at, gpu_s, phase_s


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


@pytest.mark.parametrize(("length", "hang_s"), [(15.0, 0), (19.0, 14)])
def test_a_step_is_a_hang_beyond_three_typical_ones(length: float, hang_s: float) -> None:
    story = Story()
    g = story.group(start=0, token="one")
    end = g.steps(1, 5, 10, 5.0)
    g.step(6, end, end + length)
    end = g.steps(7, 10, end + length, 5.0)
    g.stop(end, "finished")
    assert story.report()["gpu_s"]["hang"] == hang_s


def test_a_skipped_step_is_rework_and_says_so() -> None:
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 4, 10)
    g.step(5, 14, 15, applied=False)
    g.steps(6, 8, 15)
    g.stop(18, "finished")
    report = story.report()
    assert gpu_s(report) == {"startup": 10, "productive": 7, "rework": 1}
    assert phase_s(report, "rework") == {"skipped": 1}
