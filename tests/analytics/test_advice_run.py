"""Advice from records whose truth is known."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest
from loading import loaded

from goodput_analytics import UnknownRun, report
from goodput_analytics.advice import young_s
from goodput_analytics.advice_cost import CostModel
from goodput_analytics.advice_run import RunAdvice, advise
from goodput_analytics.timeouts import DEFAULT_TIMEOUT_S
from reference.planned import Life, S, Shape


def told(life: Life, **how: object) -> RunAdvice:
    with loaded(life.events) as con:
        return advise(con, life.run, **how)  # type: ignore[arg-type]


def story(ranks: int = 2) -> Life:
    """Three attempts of steps of a second: a crash and a restart of 20 s, a hang of 41 s and one of 8 s, the end."""
    life = Life(shape=Shape(ranks=ranks))
    life.launch()  # four steps
    for ending in ("crash", "hang", "finish"):
        for save_s in (2, 4):
            life.plain(19)
            life.save(save_s * S)  # and a step
        if ending == "crash":
            life.crash(S // 2)
            life.launch(wait_ns=12 * S)
        elif ending == "hang":
            life.hang(30 * S)
            life.launch()
        else:
            life.finish(0, 0)
    return life


def test_every_figure_of_a_small_record() -> None:
    a = told(story())
    assert (a.gpus, a.nodes, a.ranks) == (2, 1, 2)
    # Each attempt makes 4 + 2 * 20 steps and two saves; the crash came in a half step, the hang's end is no running.
    assert a.running_s == 3 * (44 + 6) + 0.5
    assert (a.interruptions.count, a.hangs, a.restarts) == (2, 1, 2)
    assert a.interruptions.mean_s == a.running_s / 2
    assert a.node_mtbf_s == a.running_s / 2
    assert a.restart_s == (20 + 8) / 2
    assert (a.hang_s, a.typical_hang_s, a.timeout_s) == (41 / 2, 41, 41)
    assert a.saves is not None
    assert (a.saves.count, a.saves.mean_s, a.saves.max_s, a.saves.async_ratio) == (6, 3, 4, 0)
    assert a.interval_s == (23 + 20) / 2  # 23 steps before an attempt's first save, 20 before its second
    assert a.held_gpu_s == 2 * (8 + 50.5 + 20 + 50 + 41 + 8 + 50)
    assert a.interval is not None
    model = CostModel(checkpoint_s=3, mtbf_s=150.5 / 2, restart_s=14, hang_s=20.5)
    assert a.interval.model == model
    assert a.interval.young_s == young_s(3, 150.5 / 2)
    assert a.interval.optimal_s == model.optimal_s
    assert a.interval.at_actual == model.shares(21.5)
    assert a.interval.waste_gpu_s == model.shares(model.optimal_s).waste_ratio * a.held_gpu_s
    assert a.interruptions.few and a.interval_low_s is not None and a.interval_high_s is not None
    assert a.interval_low_s < model.optimal_s < a.interval_high_s


def test_the_timeout_of_a_small_record() -> None:
    a = told(story())
    assert a.timeout is not None
    kinds = {kind.kind: kind for kind in a.timeout.kinds}
    # A save and the step after it are one window.
    assert (kinds["checkpoint"].count, kinds["checkpoint"].longest_s) == (6, 5)
    assert (kinds["step"].count, kinds["step"].longest_s) == (3 * 44 - 6, 1)
    assert (a.timeout.timeout_s, a.timeout.risk_ratio) == (15, None)  # three times five: six saves say no more
    assert a.saved_per_hang_gpu_s == (41 - 15) * 2
    assert a.interval is not None
    shorter = next(w for w in a.interval.what_ifs if w.change == "shorter_timeout")
    model = a.interval.model
    after = CostModel(checkpoint_s=3, mtbf_s=model.mtbf_s, restart_s=14, hang_s=7.5)
    assert shorter.goodput_ratio == after.goodput_ratio(after.optimal_s)


def test_a_stall_that_ended_by_itself_is_no_legal_silence() -> None:
    life = Life(shape=Shape())
    life.launch()
    life.plain(40)
    life.stall(300 * S)
    life.plain(40)
    life.finish(0, 0)
    a = told(life)
    assert a.timeout is not None
    (kind,) = a.timeout.kinds
    assert (kind.longest_s, a.timeout.recovered_stalls_s, a.timeout.cut_stalls) == (1, (312,), 1)
    assert a.timeout_s == DEFAULT_TIMEOUT_S


def test_steps_told_together_do_not_hide_the_longest() -> None:
    rng = random.Random(1)
    life = Life(shape=Shape(ranks=2, busy=False))
    life.launch()
    for _ in range(400):
        if rng.random() < 1 / 40:
            life.gap(14 * S)
        life.plain(1)
    life.finish(0, 0)
    together = [
        event | {"count": 20} if event["kind"] == "step" else event
        for event in life.events
        if event["kind"] != "step" or event["step"] % 20 == 0
    ]
    one_untold = [e for e in life.events if e["kind"] != "step" or e["step"] != 200]
    with loaded(life.events) as con:
        alone = advise(con, life.run).timeout
    with loaded(one_untold) as con:
        missing = advise(con, life.run).timeout
    with loaded(together) as con:
        a = advise(con, life.run).timeout
    assert alone is not None and a is not None and missing is not None
    assert alone.kinds[0].longest_s == 15
    # The mean of the twenty is below three seconds; a timeout may not be less than the longest of them.
    assert a.timeout_s >= a.kinds[0].longest_s >= 15 + 19
    # A window of two steps, one of which nobody told of, tells nothing of either.
    assert (missing.kinds[0].count, missing.kinds[0].longest_s) == (alone.kinds[0].count - 2, 15)


@pytest.mark.parametrize("hung", [False, True])
def test_a_run_that_hangs_now_is_not_running(hung: bool) -> None:
    life = Life(shape=Shape())
    life.launch()  # four steps
    life.plain(40)
    life.look(S // 2, hung=hung)
    assert told(life).running_s == (44 if hung else 44.5)


def test_without_an_interruption_there_is_only_a_lower_end() -> None:
    life = Life(shape=Shape())
    life.launch()
    for _ in range(5):
        life.plain(20)
        life.save(2 * S)
    life.finish(0, 0)
    a = told(life)
    assert (a.interruptions.count, a.interruptions.mean_s, a.interval, a.interval_high_s) == (0, None, None, None)
    assert a.interval_low_s is not None
    # At 95 % the true mean is no less than running time over 3.69.
    assert a.interval_low_s == pytest.approx(CostModel(checkpoint_s=2, mtbf_s=a.running_s / 3.6889).optimal_s, rel=1e-3)
    assert (a.restart_s, a.hang_s, a.node_mtbf_s) == (None, 0, None)


def test_without_a_save_nothing_is_advised() -> None:
    life = Life(shape=Shape())
    life.launch()
    life.crash(0)
    life.launch()
    life.finish(0, 0)
    a = told(life)
    assert (a.saves, a.interval, a.interval_s, a.interruptions.count) == (None, None, None, 1)


def test_planned_stops_rollbacks_and_failed_starts_are_counted_apart() -> None:
    life = Life(shape=Shape())
    life.launch()
    life.plain(10)
    life.save(S)
    life.crash(0, reason="preempted")
    life.launch()
    life.plain(10)
    life.rollback(3 * S)
    life.crash(0)
    life.launch()
    life.finish(0, 0)
    a = told(life)
    assert (a.interruptions.count, a.planned_stops, a.rollbacks, a.startup_failures) == (1, 1, 1, 0)
    assert a.restarts == 1


def test_an_attempt_that_died_before_its_first_step_is_no_interruption_of_running() -> None:
    life = Life(shape=Shape())
    life.launch()
    life.plain(10)
    life.crash(0)
    pen_events = len(life.events)
    life.launch()
    # Of the second attempt keep the start alone, and let it stop there.
    kept = [e for e in life.events[pen_events:] if e["kind"] in ("start", "resume")]
    last = max(e["ts_ns"] for e in kept)
    stop = {**kept[-1], "kind": "stop", "seq": kept[-1]["seq"] + 1, "ts_ns": last + S, "reason": "exception"}
    stop = {key: value for key, value in stop.items() if key != "step"}
    with loaded([*life.events[:pen_events], *kept, stop]) as con:
        a = advise(con, life.run)
        counted = report(con, life.run).checkpoints
    assert (a.interruptions.count, a.startup_failures, a.restart_s) == (1, 1, None)
    assert counted.mtbf_s == a.running_s / 2  # the report counts both


def test_saves_in_the_background_tell_how_long_they_write() -> None:
    life = Life(shape=Shape())
    life.launch()
    for _ in range(4):
        life.plain(10)
        life.background_save(S, durable=True)  # durable two steps later
    life.crash(0)
    life.launch()
    life.finish(0, 0)
    a = told(life)
    assert a.saves is not None and a.interval is not None
    assert (a.saves.mean_s, a.saves.async_ratio, a.saves.write_s) == (1, 1, 2)
    assert a.interval.model.write_s == 2
    assert "async_save" not in {w.change for w in a.interval.what_ifs}


def test_noise_of_a_run_is_told_for_more_ranks() -> None:
    rng = random.Random(1)
    life = Life(shape=Shape(ranks=4))
    life.launch()
    slow = 0
    for _ in range(200):
        if rng.random() < 0.08:
            slow += 1
            life.advance(slow=(rng.randrange(4), S))
        else:
            life.plain(1)
    life.finish(0, 0)
    noise = told(life, at_ranks=[16]).noise
    assert noise is not None
    assert (noise.ranks, noise.quiet_s, noise.slow_factor) == (4, 1, 2)
    assert noise.slow_ratio == slow / 4 / noise.steps
    assert noise.steps == 203  # all but the attempt's first
    assert noise.observed_slowdown == pytest.approx(1 + slow / noise.steps)
    assert list(noise.slowdown_by_ranks) == [4, 16, 40]
    assert noise.formula_by_ranks is not None
    assert noise.formula_by_ranks[40] == pytest.approx(1 + 1 - (1 - noise.slow_ratio) ** 40)
    assert noise.slowdown_by_ranks[40] == pytest.approx(noise.formula_by_ranks[40], abs=1e-9)


def test_without_own_work_noise_is_not_known() -> None:
    assert told(story()).noise is not None
    blind = Life(shape=Shape(ranks=2, busy=False))
    blind.launch()
    blind.plain(50)
    blind.finish(0, 0)
    assert told(blind).noise is None


def test_nothing_but_a_start_and_no_such_run() -> None:
    life = Life(shape=Shape())
    life.launch()
    with loaded(life.events[:1]) as con:
        a = advise(con, life.run)
        with pytest.raises(UnknownRun):
            advise(con, "another")
    assert (a.running_s, a.interruptions.mean_s, a.interval, a.interval_low_s, a.timeout) == (0, None, None, None, None)


@dataclass(kw_only=True)
class Failing(Life):
    """A life whose failures come at random, in running time."""

    def plain(self, n: int) -> None:
        """No steps of its own accord."""


def failing(mtbf_s: float, running_s: float, seed: int) -> Life:
    """A record of about `running_s` of running in steps of ten seconds; it fails in steps and in saves alike."""
    rng = random.Random(seed)
    life = Failing(shape=Shape(step_ns=10 * S, busy=False))
    left_s, due_s = running_s, rng.expovariate(1 / mtbf_s)
    life.launch()
    due_s -= 10
    while left_s > 0:
        if due_s <= 10:
            life.crash(round(max(due_s, 0) * S))
            left_s -= due_s
            life.launch(wait_ns=5 * S)
            due_s = rng.expovariate(1 / mtbf_s) - 10
        else:
            life.advance()
            due_s -= 10
        left_s -= 10
    life.finish(0, 0)
    return life


def test_the_mean_between_failures_is_found_again_in_nine_records_of_ten() -> None:
    held = []
    for seed in range(10):
        m = told(failing(400.0, 3200.0, seed)).interruptions
        assert m.low_s is not None
        held.append(m.low_s <= 400.0 <= (m.high_s or np.inf))
    assert np.mean(held) >= 0.9
