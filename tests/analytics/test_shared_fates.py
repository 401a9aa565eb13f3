"""Time that shares the fate of steps which were thrown away, fell back, or were told by some ranks only."""

from __future__ import annotations

from agreeing import told

from reference.stories import Story, at, gpu_s


def test_an_evaluation_before_a_rollback_is_thrown_away_with_what_it_evaluated() -> None:
    """Step 5 is evaluated, then the run falls back to 3 without a word: the evaluation is the first life's."""
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 5, 10)
    g.span("evaluation", 15, 20, step=5)
    g.steps(4, 6, 20)
    g.stop(23, "finished")
    report = told(story)
    assert gpu_s(report) == {"startup": 10, "productive": 6, "rework": 2 + 5}
    [rollback] = report["incidents"]
    assert (rollback["cause"], rollback["lost_steps"], rollback["rework_gpu_s"]) == ("rollback", 2, 7)


def test_an_evaluation_that_names_no_step_is_of_the_last_one_before_it() -> None:
    story = Story()
    g = story.group(start=0, token="one", job="a")
    g.steps(1, 3, 10)
    g.span("evaluation", 13, 15)
    g.steps(4, 5, 15)
    g.span("evaluation", 17, 20)
    g.step(6, 20, 21)
    g.stop(21, "exception")
    g = story.group(start=40, token="two", job="b")
    g.resume(45, 4)
    g.steps(5, 6, 50)
    g.stop(52, "finished")
    assert gpu_s(told(story)) == {"startup": 20, "productive": 6, "evaluation": 2, "rework": 2 + 3}


def test_a_productive_span_is_divided_among_all_that_pay_for_its_steps() -> None:
    """One event stands for steps 1 to 4, with a rollout of 8 s in its window. Step 1 is kept; 4 was lost at the first
    end, which resumed at 3, and 2 and 3 at the second, which resumed at 1."""
    story = Story()
    for n, (resumed, job) in enumerate(((0, "a"), (3, "b"), (1, "c"))):
        g = story.group(start=100 * n, token=job, job=job)
        g.resume(100 * n + 5, resumed)
        if n == 0:
            g.step(0, 8, 10)
            g.span("rollout", 10, 18, category="productive")
            g.step(4, 18, 22, count=4)
        else:
            g.step(resumed + 1, 100 * n + 10, 100 * n + 11)
        g.stop(100 * n + 25, "exception" if n < 2 else "finished")
    report = told(story)
    first, second, *_ = report["incidents"]
    assert (first["lost_steps"], second["lost_steps"]) == (1, 3)
    # A quarter of the rollout and of the step for each; the second end pays for its own step 4, and for its own wait.
    assert first["rework_gpu_s"] == 1 * (2 + 1) + (25 - 22)


def test_a_productive_span_of_a_skipped_step_is_skipped_too() -> None:
    story = Story()
    g = story.group(start=0, token="one")
    g.steps(1, 3, 10)
    g.span("rollout", 13, 17, category="productive")
    g.step(4, 17, 18, applied=False)
    g.steps(5, 6, 18)
    g.stop(20, "finished")
    report = told(story)
    assert gpu_s(report) == {"startup": 10, "productive": 5, "rework": 5}
    assert report["phases_gpu_s"]["rework"] == {"skipped": 5}


def test_a_productive_span_before_a_rollbacks_first_step_shares_that_steps_fate() -> None:
    story = Story()
    g = story.group(start=0, token="one")
    g.span("checkpoint", 8, 9, step=0)
    g.steps(1, 3, 10)
    g.resume(13, 1)
    g.span("rollout", 14, 17, category="productive")
    g.steps(2, 3, 18)
    g.stop(20, "exception")
    report = told(story)
    # What it had loaded is safe, and nothing since: 2 steps, 2 again, and the rollout. The rest is a restart.
    assert gpu_s(report) == {"startup": 10 + 2, "productive": 1, "rework": 4 + 3}


def test_what_is_at_risk_is_all_that_one_would_fall_back_behind() -> None:
    """The save of step 2 is the last; the second attempt said nothing of what it loaded, and goes on from 7."""
    story = Story()
    g = story.group(start=0, token="one", job="a")
    g.steps(1, 2, 10)
    g.span("checkpoint", 12, 13, step=2)
    g.steps(3, 7, 13)
    g.stop(18, "exception")
    g = story.group(start=30, token="two", job="b")
    g.steps(8, 9, 40)
    assert told(story)["at_risk_gpu_s"] == 5 + 2


def test_of_a_window_of_many_steps_only_those_behind_the_save_are_at_risk() -> None:
    """Steps 1 to 5 in one event. The run then went on from 3, and would again: what was kept of them is safe."""
    story = Story()
    g = story.group(start=0, token="one", job="a")
    g.resume(5, 0)
    g.step(5, 10, 15, count=5)
    g.stop(16, "exception")
    g = story.group(start=30, token="two", job="b")
    g.resume(35, 3)
    report = told(story)
    assert (report["gpu_s"]["productive"], report["at_risk_gpu_s"]) == (3, 0)
    g.steps(4, 5, 40)
    assert told(story)["at_risk_gpu_s"] == 2


def test_a_ranks_own_spans_take_nothing_of_its_gap() -> None:
    """Rank 1 came 2 s late to step 6 and spent most of it in a span: the others waited for 2 s all the same."""
    story = Story()
    g = story.group(start=0, ranks=2, token="one")
    g.steps(1, 5, 10, busy={0: 0.5, 1: 0.5})
    g.span("rollout", 17, 17.75, ranks=[1], category="productive")
    g.step(6, 15, 18, ranks=[0], busy={0: 1})
    g.step(6, 17, 18, ranks=[1], busy={1: 0.25})
    g.steps(7, 9, 18, busy={0: 0.5, 1: 0.5})
    g.stop(21, "finished")
    # Half of the 2 s is the median gap; of lateness rank 1 has 2 s and rank 0 has 1 s.
    report = told(story)
    assert (report["gpu_s"]["unattributed"], report["gpu_s"]["straggler"]) == (2, 2)


def test_a_rank_is_slow_against_its_own_group() -> None:
    """In 21 of 40 steps it is rank 0 that is the latest; rank 3's own group is that of rank 2 all the same."""
    story = Story()
    groups = {0: "a", 1: "a", 2: "b", 3: "b"}
    g = story.group(start=0, ranks=4, token="one")
    for event in story.events:
        event["group"] = groups[event["rank"]]
    for n in range(1, 41):
        busy = {0: 0.1, 1: 0.1, 2: 0.2, 3: 0.9} if n % 2 == 0 and n < 40 else {0: 0.95, 1: 0.1, 2: 0.1, 3: 0.3}
        g.step(n, 10 + n, 11 + n, busy=busy)
    g.stop(52, "finished")
    rows = {row["rank"]: (row["slowest_steps"], row["slowdown_ratio"]) for row in told(story)["stragglers"]}
    # 21 times 0.3 to 0.2 in its group, and 19 times 0.9 to 0.55.
    assert rows[3] == (19, 1.5)


def test_ranks_that_tell_as_many_rollbacks_keep_their_own() -> None:
    """Rank 1's clock is 100 s ahead, rank 2 lost the events before the rollback: neither moves a step of rank 1's."""
    story = Story()
    g = story.group(start=0, ranks=3, token="one", ahead={1: 100})
    g.steps(1, 6, 10, ranks=[0, 1])
    g.resume(16.5, 2, ranks=[0, 1])
    g.steps(3, 6, 18)
    g.stop(22, "finished")
    report = told(story)
    assert gpu_s(report) == {"startup": 3 * (10 + 2), "productive": 3 * 6, "rework": 3 * 4}
    assert report["quality"]["max_skew_s"] == 100
    assert report["attempts"][0]["end_ns"] == at(22)


def test_a_rank_that_came_after_two_rollbacks_belongs_to_the_last_life() -> None:
    story = Story()
    g = story.group(start=0, ranks=3, token="one")
    g.steps(1, 4, 10, ranks=[0, 1])
    g.resume(14.5, 2, ranks=[0, 1])
    g.steps(3, 6, 15, ranks=[0, 1])
    g.resume(19.5, 4)
    g.steps(5, 8, 20)
    g.stop(24, "finished")
    report = told(story)
    assert [(i["cause"], i["lost_steps"]) for i in report["incidents"]] == [("rollback", 2), ("rollback", 2)]
    assert report["gpu_s"]["rework"] == 3 * 4


def test_a_save_that_all_ranks_make_is_one_also_where_some_told_of_no_rollback() -> None:
    """Rank 1 said nothing of the rollback, and begins its save of step 3 before its next step."""
    story = Story()
    g = story.group(start=0, ranks=2, token="one")
    g.steps(1, 2, 10)
    g.step(3, 12, 13, ranks=[0])
    g.resume(13.5, 2, ranks=[0])
    g.step(3, 14, 15, ranks=[0])
    g.span("checkpoint", 15, 16, step=3)
    g.steps(4, 6, 16)
    g.stop(19, "finished")
    checkpoints = told(story)["checkpoints"]
    assert (checkpoints["count"], checkpoints["failed"], checkpoints["mean_blocking_s"]) == (1, 0, 1)


def test_a_save_that_one_rank_tried_twice_has_not_failed_while_it_can_become_durable() -> None:
    story = Story()
    g = story.group(start=0, ranks=2, token="one")
    g.steps(1, 3, 10)
    g.span("checkpoint", 13, 14, step=3, background=True)
    g.span("checkpoint", 14, 15, step=3, background=True, ok=False, ranks=[1])
    g.step(4, 15, 16)
    assert told(story)["checkpoints"]["failed"] == 0
    g.span("checkpoint", 16, 17, step=4, background=True, ok=False)
    assert told(story)["checkpoints"]["failed"] == 1
