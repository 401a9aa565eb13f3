"""Small runs worked out by hand: who kept the others waiting."""

from __future__ import annotations

import pytest

from .stories import Story, gpu_s, phase_s


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


@pytest.mark.parametrize("busy", [[0.2, 0.4, 0.4, 0.8], [0.1, 0.2, 0.3, 0.4, 0.8]])
def test_lateness_is_held_against_the_lower_quartile(busy: list[float]) -> None:
    """Of four the smallest, of five the second smallest: 0.2 s, and 0.6 s beyond it are lost on every GPU."""
    story = Story()
    g = story.group(start=0, ranks=len(busy), token="one")
    g.steps(1, 10, 10, busy=dict(enumerate(busy)))
    g.stop(20, "finished")
    assert story.report()["gpu_s"]["straggler"] == pytest.approx(0.6 * len(busy) * 10)


@pytest.mark.parametrize(("ranks", "slow_steps", "named"), [(4, 4, False), (4, 5, True), (2, 9, False), (2, 10, True)])
def test_a_rank_is_named_when_chance_does_not_explain_it(ranks: int, slow_steps: int, named: bool) -> None:
    story = Story()
    g = story.group(start=0, ranks=ranks, token="one")
    even = dict.fromkeys(range(ranks), 0.5)
    end = g.steps(1, 5, 10, busy=even)
    end = g.steps(6, 5 + slow_steps, end, busy=even | {1: 0.75})
    g.stop(end, "finished")
    report = story.report()
    assert [row["rank"] for row in report["stragglers"]] == ([1] if named else [])
    assert phase_s(report, "straggler") == {"rank" if named else "jitter": slow_steps * ranks / 4}


def test_in_a_group_each_rank_is_held_against_its_like() -> None:
    """Two stages of two ranks; the second stage is heavier, and that is not its ranks' fault."""
    story = Story()
    g = story.group(start=0, ranks=4, token="one")
    for rank, pen in g.pens.items():
        pen.out[rank]["group"] = f"stage-{rank // 2}"
    g.steps(1, 10, 10, busy={0: 0.2, 1: 0.3, 2: 0.7, 3: 0.7})
    g.stop(20, "finished")
    assert story.report()["gpu_s"]["straggler"] == pytest.approx(0.1 * 4 * 10)
