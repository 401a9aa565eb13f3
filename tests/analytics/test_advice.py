"""Intervals, their cost, how often a run fails and how long its saves take: at figures worked out elsewhere."""

from __future__ import annotations

import itertools
import math
from dataclasses import fields

import numpy as np
import pytest

from goodput_analytics.advice import daly_s, optimal_s, young_s
from goodput_analytics.advice_cost import CostModel
from goodput_analytics.advice_interval import advise_interval, cost
from goodput_analytics.advice_rates import rate
from goodput_analytics.advice_saves import save_times
from goodput_analytics.simulate import simulate
from goodput_analytics.simulate_job import Job
from goodput_analytics.timeouts import hang_cost_gpu_s


def test_a_minute_to_save_and_an_hour_between_failures() -> None:
    assert round(young_s(60, 3600), 1) == 657.3
    assert round(daly_s(60, 3600), 1) == 617.9


def test_a_save_that_takes_as_long_as_two_failures_apart() -> None:
    assert daly_s(7200, 3600) == 3600
    assert daly_s(9000, 3600) == 3600
    # Just below, the series holds: sqrt(2 d M) (1 + 1/3 + 1/9) - d, with d = 2M.
    assert daly_s(7199.999, 3600) == pytest.approx(7200 * 13 / 9 - 7200, abs=0.01)


def test_cheap_saves_make_the_two_agree() -> None:
    assert daly_s(1e-6, 3600) == pytest.approx(young_s(1e-6, 3600), rel=1e-4)


# -- the exact optimum ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [1e-12, 1e-6, 1e-4, 1e-3, 1e-2, 0.1, 0.5, 1.0, 2.0, 10.0])
def test_the_optimum_solves_its_equation(share: float) -> None:
    u = optimal_s(share, 1.0)
    assert 0 < u < 1
    assert -math.log1p(-u) - u == pytest.approx(share, rel=1e-6)
    assert optimal_s(share * 3600, 3600.0) == pytest.approx(3600 * u)


def test_the_optimum_beats_what_lies_beside_it_and_both_approximations() -> None:
    for share in (1e-4, 1e-2, 0.1, 0.5, 1.5):
        model = CostModel(checkpoint_s=share, mtbf_s=1.0, restart_s=0.3)
        best = model.goodput_ratio(model.optimal_s)
        assert best > max(model.goodput_ratio(model.optimal_s * f) for f in (0.99, 1.01))
        assert best >= max(model.goodput_ratio(young_s(share, 1.0)), model.goodput_ratio(daly_s(share, 1.0)))


def test_daly_is_within_a_thousandth_up_to_a_tenth() -> None:
    for share in (1e-5, 1e-3, 1e-2, 0.1):
        assert daly_s(share, 1.0) == pytest.approx(optimal_s(share, 1.0), rel=1e-3)


def test_saves_that_cost_nothing_have_no_best_interval() -> None:
    assert optimal_s(0.0, 10.0) == 0
    assert advise_interval(CostModel(checkpoint_s=0.0, mtbf_s=10.0)) is None


@pytest.mark.parametrize("share", [1e-4, 1e-3, 1e-2, 0.05, 0.2, 0.5])
def test_no_simulated_interval_beats_the_advised_one_by_a_hundredth(share: float) -> None:
    # Lengths are in mean times between failures. The sweep lies around Young's interval, closely.
    job = Job(useful_s=60.0, checkpoint_s=share, restart_s=0.1, mtbf_s=1.0)
    advised = simulate(job, optimal_s(share, 1.0), runs=200, seed=5)
    sweep = [simulate(job, young_s(share, 1.0) * 10 ** (k / 16), runs=200, seed=5) for k in range(-12, 9)]
    best = max(o.goodput_ratio for o in sweep)
    assert advised.goodput_ratio > best * 0.99
    # The sweep reaches intervals that are clearly worse, so that the comparison says something.
    assert min(o.goodput_ratio for o in sweep) < best - (0.001 if share < 1e-3 else 0.01)


# -- the cost model ---------------------------------------------------------------------------------------------------


def test_published_cells_by_formula() -> None:
    model = CostModel(checkpoint_s=120, mtbf_s=11160, restart_s=600)
    shares = model.shares(1800)
    assert shares.goodput_ratio == pytest.approx(0.815, abs=0.002)
    assert (shares.checkpoint_ratio, shares.rework_ratio, shares.restart_ratio) == pytest.approx(
        (0.054, 0.079, 0.052), abs=0.002
    )
    assert round(model.first_order_ratio(1800), 3) == 0.833
    # 20 to 45 minutes are within about two points; 10 and 120 minutes are not.
    low_s, high_s = model.flat_range_s(0.02)
    assert 600 < low_s < 1200 and 2700 < high_s < 7200


def test_one_interruption_in_three_hours_and_ten_gpu_hours_for_a_hang() -> None:
    llama = rate(419, 54 * 86_400)
    assert llama.mean_s is not None
    assert round(llama.mean_s / 3600, 1) == 3.1
    assert hang_cost_gpu_s(600, 64) / 3600 == pytest.approx(10.67, abs=0.01)


@pytest.mark.parametrize("m", [1e-3, 1.0, 1e9])
@pytest.mark.parametrize("share", [0.0, 1e-9, 0.1, 5.0])
@pytest.mark.parametrize("ratio", [1e-9, 1e-2, 1.0, 1000.0])
def test_shares_add_up_whatever_the_figures(m: float, share: float, ratio: float) -> None:
    model = CostModel(checkpoint_s=share * m, mtbf_s=m, restart_s=0.3 * m, hang_s=0.2 * m, write_s=0.1 * m)
    shares = model.shares(ratio * m)
    values = [getattr(shares, f.name) for f in fields(shares)]
    assert all(0 <= value <= 1 for value in values)
    assert sum(values) == pytest.approx(1)


def test_the_flat_range_ends_a_point_below_the_best() -> None:
    model = CostModel(checkpoint_s=60, mtbf_s=7200, restart_s=100)
    best = model.goodput_ratio(model.optimal_s)
    for edge_s in model.flat_range_s():
        assert model.goodput_ratio(edge_s) == pytest.approx(best - 0.01, abs=1e-6)
    assert (
        CostModel(checkpoint_s=1, mtbf_s=1e-3).flat_range_s()[1] > 1
    )  # all are as bad: no edge, and no endless search


def test_background_writes_longer_than_the_optimum_set_the_interval() -> None:
    model = CostModel(checkpoint_s=1, mtbf_s=3600, write_s=600)
    best = model.goodput_ratio(model.optimal_s)
    assert model.optimal_s == 600
    assert best >= max(model.goodput_ratio(t) for t in range(50, 3600, 50))


@pytest.mark.parametrize(
    "bad", [{"checkpoint_s": -1}, {"mtbf_s": 0}, {"restart_s": math.nan}, {"hang_s": math.inf}, {"write_s": -1}]
)
def test_figures_that_cannot_be(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        CostModel(**{"checkpoint_s": 1.0, "mtbf_s": 10.0} | bad)


def test_what_ifs_are_the_model_with_other_figures() -> None:
    model = CostModel(checkpoint_s=600, mtbf_s=11160, restart_s=600, hang_s=300)
    told = advise_interval(model, actual_s=7200, held_gpu_s=3600.0 * 1000, shorter_hang_s=60)
    assert told is not None and told.at_actual is not None
    by_change = {w.change: w for w in told.what_ifs}
    assert set(by_change) == {"async_save", "faster_restart", "shorter_timeout", "all"}
    faster = CostModel(checkpoint_s=600, mtbf_s=11160, restart_s=300, hang_s=300)
    gained = faster.goodput_ratio(faster.optimal_s) - model.goodput_ratio(model.optimal_s)
    assert by_change["faster_restart"].gained_ratio == pytest.approx(gained)
    assert by_change["faster_restart"].gained_gpu_s == pytest.approx(gained * 3600 * 1000)
    assert by_change["all"].gained_ratio > max(by_change[c].gained_ratio for c in by_change if c != "all")
    assert told.what_ifs[0].change == "all"
    assert told.waste_gpu_s == pytest.approx((1 - told.at_optimal.goodput_ratio) * 3600 * 1000)
    assert cost(told.actual_waste_gpu_s, 2.0) == pytest.approx(2000 * told.at_actual.waste_ratio)
    assert cost(None, 2.0) is None and cost(1.0, None) is None


# -- how often it fails -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "low", "high"),
    # Exact limits of a Poisson mean at 95 %, from published tables.
    [
        (0, 0.0, 3.689),
        (1, 0.0253, 5.572),
        (2, 0.242, 7.225),
        (10, 4.795, 18.39),
        (50, 37.11, 65.92),
        (100, 81.36, 121.6),
    ],
)
def test_the_interval_is_the_exact_one(count: int, low: float, high: float) -> None:
    told = rate(count, 1000.0)
    assert told.low_s is not None
    assert 1000 / told.low_s == pytest.approx(high, rel=1e-3)
    if count:
        assert told.high_s is not None
        assert 1000 / told.high_s == pytest.approx(low, rel=2e-3)
    else:
        assert (told.mean_s, told.high_s) == (None, None)


def test_the_interval_has_no_step_where_it_changes_method() -> None:
    one, two = rate(1000, 1.0), rate(1001, 1.0)
    assert one.low_s and two.low_s and one.high_s and two.high_s
    assert one.low_s / two.low_s == pytest.approx(1.001, abs=2e-4)
    assert one.high_s / two.high_s == pytest.approx(1.001, abs=2e-4)


def test_nothing_seen_divides_by_nothing() -> None:
    told = rate(0, 0.0)
    assert (told.mean_s, told.low_s, told.high_s, told.few) == (None, None, None, True)
    assert rate(2, 0.0).mean_s is None
    for bad in ((-1, 1.0), (0, -1.0), (0, math.nan)):
        with pytest.raises(ValueError, match="negative"):
            rate(*bad)


@pytest.mark.parametrize("expected", [0.5, 3.0, 30.0])
def test_the_true_mean_lies_in_the_interval_of_nineteen_records_in_twenty(expected: float) -> None:
    counts = np.random.default_rng(7).poisson(expected, 2000)
    told = {int(n): rate(int(n), expected * 1000.0) for n in np.unique(counts)}
    held = [(r.low_s or 0.0) <= 1000.0 <= (r.high_s or math.inf) for r in (told[int(n)] for n in counts)]
    assert np.mean(held) >= 0.94


# -- saves ------------------------------------------------------------------------------------------------------------


def test_the_spread_of_saves() -> None:
    told = save_times([float(n) for n in range(100, 0, -1)], [None] * 100)
    assert told is not None
    assert (told.p50_s, told.p90_s, told.p99_s, told.max_s, told.mean_s) == (50, 90, 99, 100, 50.5)
    assert told.trending and told.recent_s == 5.5 and told.checkpoint_s == 5.5
    assert save_times([], []) is None


def test_noise_is_no_trend_and_a_trend_is_found_in_noise() -> None:
    rng = np.random.default_rng(3)
    steady = [save_times(rng.exponential(10, 60).tolist(), [None] * 60) for _ in range(100)]
    assert sum(s.trending for s in steady if s) <= 2
    growing = [
        save_times((rng.lognormal(2, 0.5, 60) * np.linspace(1, 4, 60)).tolist(), [None] * 60) for _ in range(100)
    ]
    assert sum(s.trending for s in growing if s) >= 80
    few = save_times([1.0, 2.0, 3.0], [None, 4.0, 6.0])
    assert few is not None
    assert (few.trend_ratio, few.trending, few.async_ratio, few.write_s) == (None, False, pytest.approx(2 / 3), 5.0)


def test_no_figures_whatever_make_it_stumble() -> None:
    seconds = [0.0, 1e-9, 1e-3, 1.0, 1e6, 1e12]
    for delta, m, r, h, w in itertools.product(seconds, seconds, [0.0, 1e12], [0.0, 1e12], [0.0, 1.0, 1e12]):
        if m < 1e-6:
            continue
        told = advise_interval(
            CostModel(checkpoint_s=delta, mtbf_s=m, restart_s=r, hang_s=h, write_s=w), actual_s=10.0, held_gpu_s=1.0
        )
        if told is None:
            assert (delta, w) == (0, 0)
            continue
        values = [told.young_s, told.daly_s, told.optimal_s, told.flat_low_s, told.flat_high_s]
        values += [w.gained_ratio for w in told.what_ifs]
        assert all(map(math.isfinite, values)), (delta, m, r, h, w)
        assert told.flat_low_s <= told.optimal_s * (1 + 1e-9) and told.optimal_s <= told.flat_high_s * (1 + 1e-9)
