"""The simulation against the article's tables, against a plain slow one, and against the closed form."""

from __future__ import annotations

import bisect
import math
import random
import time
from typing import Any

import numpy as np
import pytest
from slow_simulator import SHARES, SlowRun

from goodput_analytics.advice import optimal_s, young_s
from goodput_analytics.advice_cost import CostModel
from goodput_analytics.simulate import MOST_INTERRUPTIONS, Outcome, simulate
from goodput_analytics.simulate_job import Elastic, Job

HOUR_S = 3600.0
MTBF_S = 3.1 * HOUR_S

# Goodput, saves, lost work, restarts, first-order model; by minutes between saves, 0 standing for Young's interval.
TABLES: dict[int, dict[int, tuple[float, ...]]] = {
    20: {
        5: (0.876, 0.058, 0.013, 0.052, 0.882),
        10: (0.892, 0.030, 0.026, 0.052, 0.898),
        20: (0.883, 0.015, 0.051, 0.052, 0.890),
        30: (0.864, 0.010, 0.075, 0.052, 0.873),
        45: (0.832, 0.006, 0.110, 0.052, 0.846),
        60: (0.799, 0.004, 0.144, 0.052, 0.819),
        90: (0.736, 0.003, 0.210, 0.052, 0.770),
        120: (0.674, 0.002, 0.272, 0.052, 0.725),
        180: (0.562, 0.001, 0.385, 0.052, 0.650),
        0: (0.893, 0.027, 0.029, 0.052),
    },
    120: {
        5: (0.665, 0.267, 0.016, 0.052, 0.682),
        10: (0.765, 0.154, 0.029, 0.052, 0.781),
        20: (0.812, 0.082, 0.054, 0.052, 0.828),
        30: (0.815, 0.054, 0.079, 0.052, 0.833),
        45: (0.799, 0.036, 0.114, 0.052, 0.820),
        60: (0.775, 0.026, 0.147, 0.052, 0.801),
        90: (0.719, 0.016, 0.212, 0.052, 0.759),
        120: (0.662, 0.011, 0.275, 0.052, 0.718),
        180: (0.554, 0.006, 0.388, 0.052, 0.646),
        0: (0.816, 0.060, 0.072, 0.052),
    },
    600: {
        5: (0.304, 0.623, 0.021, 0.052, 0.326),
        10: (0.449, 0.461, 0.037, 0.052, 0.481),
        20: (0.583, 0.299, 0.066, 0.052, 0.622),
        30: (0.638, 0.218, 0.092, 0.052, 0.681),
        45: (0.667, 0.152, 0.129, 0.052, 0.716),
        60: (0.671, 0.114, 0.163, 0.052, 0.724),
        90: (0.647, 0.074, 0.228, 0.052, 0.711),
        120: (0.608, 0.051, 0.289, 0.052, 0.685),
        180: (0.519, 0.029, 0.399, 0.052, 0.628),
        0: (0.671, 0.113, 0.165, 0.052),
    },
}


def published(checkpoint_s: float) -> Job:
    return Job(useful_s=200 * HOUR_S, checkpoint_s=checkpoint_s, restart_s=600.0, mtbf_s=MTBF_S)


def cells(outcome: Outcome) -> tuple[float, ...]:
    o = outcome
    return o.goodput_ratio, o.checkpoint_ratio, o.rework_ratio, o.restart_ratio, o.model_ratio


@pytest.mark.parametrize("checkpoint_s", TABLES)
def test_every_cell_of_the_published_tables_within_a_hundredth(checkpoint_s: int) -> None:
    for minutes, row in TABLES[checkpoint_s].items():
        interval_s = 60.0 * minutes or young_s(checkpoint_s, MTBF_S)
        told = cells(simulate(published(checkpoint_s), interval_s, runs=400, seed=1))
        assert told[: len(row)] == pytest.approx(row, abs=0.01), minutes


@pytest.mark.parametrize(("checkpoint_s", "minutes"), [(20, 11.1), (120, 27.3), (600, 61.0)])
def test_the_published_intervals(checkpoint_s: float, minutes: float) -> None:
    assert round(young_s(checkpoint_s, MTBF_S) / 60, 1) == minutes


def test_four_hundred_runs_take_less_than_a_second_a_row() -> None:
    def seconds(job: Job, interval_s: float) -> float:
        began = time.perf_counter()
        simulate(job, interval_s, runs=400)
        return time.perf_counter() - began

    for checkpoint_s, rows in TABLES.items():
        for minutes in rows:
            job, interval_s = published(checkpoint_s), 60.0 * minutes or 1000.0
            # What else the machine does can only add to the time: the better of two counts.
            assert min(seconds(job, interval_s) for _ in range(2)) < 1.0


def random_job(rng: random.Random, **more: Any) -> tuple[Job, float]:
    """A job and an interval, over some orders of magnitude, that come to an end."""
    mtbf_s = 10 ** rng.uniform(2.5, 5)
    checkpoint_s = mtbf_s * 10 ** rng.uniform(-3, -0.3)
    interval_s = optimal_s(checkpoint_s, mtbf_s) * 10 ** rng.uniform(-0.7, 0.4)
    restart_s = mtbf_s * rng.choice([0.0, rng.uniform(0, 1)])
    useful_s = min(rng.uniform(2, 20) * mtbf_s, 150 * interval_s) * rng.uniform(0.5, 1)
    return (
        Job(useful_s=useful_s, checkpoint_s=checkpoint_s, restart_s=restart_s, mtbf_s=mtbf_s, **more),
        interval_s,
    )


def trace(rng: random.Random, job: Job) -> tuple[float, ...]:
    """Failures as they might come to a job, for longer than it takes."""
    assert job.mtbf_s is not None
    now, times = 0.0, []
    for _ in range(400):
        now += rng.expovariate(1 / job.mtbf_s)
        times.append(now)
    return tuple(times)


def slow_shares(job: Job, interval_s: float) -> list[float]:
    times = job.failure_times_s or ()

    def next_failure(now: float) -> float:
        place = bisect.bisect_right(times, now)
        return times[place] if place < len(times) else math.inf

    shares = SlowRun(job, interval_s, next_failure).go()
    return [shares[name] for name in SHARES]


def fast_shares(outcome: Outcome) -> list[float]:
    return [getattr(outcome, f"{name}_ratio") for name in SHARES]


def told(job: Job, times: tuple[float, ...], **more: Any) -> Job:
    fields = ("useful_s", "checkpoint_s", "restart_s")
    return Job(**{name: getattr(job, name) for name in fields}, failure_times_s=times, **more)


def test_two_hundred_settings_hit_by_the_same_failures_as_a_slow_simulator() -> None:
    rng = random.Random(1)
    hit = 0
    for _ in range(200):
        job, interval_s = random_job(rng)
        job = told(job, trace(rng, job))
        outcome = simulate(job, interval_s, runs=1)
        assert fast_shares(outcome) == pytest.approx(slow_shares(job, interval_s), abs=1e-9), (job, interval_s)
        hit += outcome.interruptions > 0
    assert hit > 180


def test_two_hundred_settings_as_a_slow_simulator_draws_them() -> None:
    rng = random.Random(2)
    apart = []
    for seed in range(200):
        job, interval_s = random_job(rng)
        fast = simulate(job, interval_s, runs=200, seed=seed)
        slow = [
            SlowRun(job, interval_s, lambda now, m=job.mtbf_s: now + rng.expovariate(1 / m)).go()["goodput"]
            for _ in range(8)
        ]
        assert fast.stderr is not None
        error = math.hypot(fast.stderr, fast.stderr * math.sqrt(200 / 8))
        apart.append((float(np.mean(slow)) - fast.goodput_ratio) / error)
    # Differences in standard errors: none beyond chance, and together neither too wide nor to one side.
    assert max(map(abs, apart)) < 5
    assert abs(np.mean(apart)) < 4 / math.sqrt(200)
    assert 0.7 < np.std(apart) < 1.4


@pytest.mark.parametrize("what", ["write", "hang", "elastic", "min_nodes", "everything"])
def test_what_else_a_job_can_do_against_the_slow_simulator(what: str) -> None:
    rng = random.Random(what)
    for _ in range(60):
        job, interval_s = random_job(rng)
        assert job.mtbf_s is not None
        more: dict[str, Any] = {}
        if what in ("write", "everything"):
            more["write_s"] = interval_s * rng.uniform(0, 2)
        if what in ("hang", "everything"):
            more |= {"hang_ratio": 1.0, "hang_timeout_s": job.mtbf_s * rng.uniform(0, 1)}
        if what in ("elastic", "min_nodes", "everything"):
            nodes = rng.randint(4, 9)
            more["elastic"] = Elastic(
                nodes=nodes,
                repair_s=job.mtbf_s * rng.uniform(0.1, 2),
                restart_s=job.restart_s / 2,
                min_nodes=1 if what == "elastic" else rng.randint(1, nodes),
            )
        job = told(job, trace(rng, job), **more)
        outcome = simulate(job, interval_s, runs=1)
        assert fast_shares(outcome) == pytest.approx(slow_shares(job, interval_s), abs=1e-9), (job, interval_s)
        assert sum(fast_shares(outcome)) == pytest.approx(1)


def test_the_closed_form_is_what_long_jobs_come_to() -> None:
    rng = random.Random(3)
    for seed in range(60):
        job, interval_s = random_job(rng, write_s=rng.choice([0.0, rng.uniform(0, 300)]))
        assert job.mtbf_s is not None
        # In the long run the last chunk, and the beginning without a restart, no longer count.
        longer = Job(
            useful_s=interval_s * round(60 * job.mtbf_s / interval_s + 1),
            checkpoint_s=job.checkpoint_s,
            restart_s=job.restart_s,
            mtbf_s=job.mtbf_s,
            write_s=job.write_s,
            hang_ratio=0.5,
            hang_timeout_s=job.mtbf_s / 10,
        )
        model = CostModel(
            checkpoint_s=job.checkpoint_s,
            mtbf_s=job.mtbf_s,
            restart_s=job.restart_s,
            hang_s=job.mtbf_s / 20,
            write_s=job.write_s,
        )
        outcome, shares = simulate(longer, interval_s, runs=200, seed=seed), model.shares(interval_s)
        assert cells(outcome)[:4] == pytest.approx(
            (shares.goodput_ratio, shares.checkpoint_ratio, shares.rework_ratio, shares.restart_ratio), abs=0.012
        ), (longer, interval_s)
        assert outcome.hang_ratio == pytest.approx(shares.hang_ratio, abs=0.005)
        assert sum(cells(outcome)[:4]) + outcome.hang_ratio == pytest.approx(1)


def test_weibull_gaps_keep_their_mean_and_bursts_cost_less_rework() -> None:
    job = {"useful_s": 400 * HOUR_S, "checkpoint_s": 120.0, "restart_s": 0.0, "mtbf_s": MTBF_S}
    bursts, steady, spaced = (simulate(Job(**job, weibull_shape=k), 1800.0, seed=3) for k in (0.5, 1.0, 4.0))
    for outcome in (bursts, steady, spaced):
        # 0.9 of a failure per mean gap at the least, for the last gap is cut off by the job's end.
        held_s = job["useful_s"] / outcome.goodput_ratio
        assert outcome.interruptions * MTBF_S / held_s == pytest.approx(1, abs=0.06)
    assert bursts.rework_ratio < steady.rework_ratio < spaced.rework_ratio + 0.01
    plain = simulate(Job(**job), 1800.0, seed=3)
    assert cells(plain) == pytest.approx(cells(steady))


def test_a_hang_costs_its_timeout_on_every_gpu() -> None:
    job = Job(useful_s=1000.0, checkpoint_s=0.0, failure_times_s=(450.0,), hang_ratio=1.0, hang_timeout_s=600.0)
    outcome = simulate(job, 100.0, runs=1)
    assert outcome.goodput_ratio == pytest.approx(1000 / 1650)
    assert (outcome.rework_ratio, outcome.hang_ratio) == pytest.approx((50 / 1650, 600 / 1650))
    assert outcome.stderr is None


def test_a_lost_node_slows_the_job_until_the_save_after_its_repair() -> None:
    # Two nodes; at 50 s one goes. Half as fast, chunks of 100 take 200 s. It is repaired at 270 s: the save at 460 s.
    job = Job(
        useful_s=400.0,
        checkpoint_s=0.0,
        failure_times_s=(50.0,),
        elastic=Elastic(nodes=2, repair_s=220.0, restart_s=10.0),
    )
    outcome = simulate(job, 100.0, runs=1)
    # 50 lost, a restart of 10 on one node, 400 at half speed, a restart of 10 on both, 200 at full speed.
    assert outcome.goodput_ratio == pytest.approx(400 / 670)
    assert outcome.restart_ratio == pytest.approx(15 / 670)
    assert outcome.degraded_ratio == pytest.approx(205 / 670)
    assert outcome.rework_ratio == pytest.approx(50 / 670)


def test_a_save_in_the_background_is_worth_nothing_until_it_is_durable() -> None:
    def outcome(failure_s: float) -> Outcome:
        job = Job(useful_s=300.0, checkpoint_s=1.0, write_s=30.0, failure_times_s=(failure_s,))
        return simulate(job, 100.0, runs=1)

    assert outcome(130.9).rework_ratio * (130.9 + 333) == pytest.approx(129.9)
    assert outcome(131.1).rework_ratio * (131.1 + 232) == pytest.approx(30.1, abs=0.2)


def test_a_job_that_never_ends_is_cut_short_and_says_so() -> None:
    job = Job(useful_s=HOUR_S, checkpoint_s=1.0, mtbf_s=60.0)
    outcome = simulate(job, HOUR_S, runs=20)
    assert (outcome.finished_ratio, outcome.interruptions, outcome.goodput_ratio) == (0, MOST_INTERRUPTIONS, 0)
    assert simulate(job, 60.0, runs=20).finished_ratio == 1


def test_the_same_seed_gives_the_same_figures_and_another_gives_others() -> None:
    job = published(120)
    assert simulate(job, 600.0, seed=4) == simulate(job, 600.0, seed=4)
    assert simulate(job, 600.0, seed=4) != simulate(job, 600.0, seed=5)


def test_no_failure_leaves_only_the_saves() -> None:
    outcome = simulate(Job(useful_s=1000.0, checkpoint_s=10.0, failure_times_s=()), 300.0, runs=1)
    assert outcome.goodput_ratio == pytest.approx(1000 / 1040)  # four saves: the last chunk of 100 has one too
    assert outcome.model_ratio == pytest.approx(300 / 310)


@pytest.mark.parametrize(
    "bad",
    [
        {"useful_s": 0},
        {"useful_s": math.inf},
        {"checkpoint_s": -1},
        {"restart_s": math.nan},
        {"mtbf_s": 0},
        {"mtbf_s": None},
        {"failure_times_s": (1.0,)},
        {"mtbf_s": None, "failure_times_s": (2.0, 1.0)},
        {"mtbf_s": None, "failure_times_s": (0.0,)},
        {"hang_ratio": 1.1},
        {"weibull_shape": 0},
        {"write_s": -1},
        {"hang_timeout_s": math.inf},
    ],
)
def test_a_job_that_cannot_be(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad)).split("_s")[0][:4] + "|either|failure"):
        Job(**{"useful_s": 100.0, "checkpoint_s": 1.0, "mtbf_s": 50.0} | bad)


@pytest.mark.parametrize("bad", [{"nodes": 0}, {"min_nodes": 3}, {"min_nodes": 0}, {"repair_s": -1}])
def test_an_elastic_job_that_cannot_be(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        Elastic(**{"nodes": 2, "repair_s": 1.0} | bad)


@pytest.mark.parametrize(
    ("interval_s", "runs"), [(0.0, 1), (-1.0, 1), (math.nan, 1), (1e-20, 1), (1.0, 0), (1.0, 10**9)]
)
def test_what_cannot_be_simulated(interval_s: float, runs: int) -> None:
    with pytest.raises(ValueError, match=r"interval|runs"):
        simulate(published(120), interval_s, runs=runs)
