"""Slow ranks at scale: the published table, and the noise of steps whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from goodput_analytics.scale import any_slow_ratio, expected_greatest, fit_noise, simulated_slowdown, slowdown

# Ranks, share of slow steps, steps with a slow rank, simulated length, length by the formula.
TABLE = [
    (8, 0.0005, 0.004, 1.004, 1.004),
    (8, 0.002, 0.016, 1.017, 1.016),
    (64, 0.0005, 0.032, 1.031, 1.032),
    (64, 0.002, 0.120, 1.119, 1.120),
    (512, 0.0005, 0.226, 1.228, 1.226),
    (512, 0.002, 0.641, 1.644, 1.641),
    (4096, 0.0005, 0.871, 1.873, 1.871),
    (4096, 0.002, 1.000, 2.000, 2.000),
]


@pytest.mark.parametrize(("ranks", "p", "any_slow", "simulated", "formula"), TABLE)
def test_the_published_table(ranks: int, p: float, any_slow: float, simulated: float, formula: float) -> None:
    assert any_slow_ratio(ranks, p) == pytest.approx(any_slow, abs=0.0006)
    assert slowdown(ranks, p) == pytest.approx(formula, abs=0.0006)
    # The published simulation and this one both scatter: 20,000 steps leave 0.0035 each.
    assert simulated_slowdown(ranks, p, steps=1_000_000) == pytest.approx(simulated, abs=0.005)


def test_the_simulation_is_what_drawing_each_rank_gives() -> None:
    slow = np.random.default_rng(2).random((4000, 64)) < 0.01
    drawn = float(np.mean(np.where(slow.any(axis=1), 3.0, 1.0)))
    assert simulated_slowdown(64, 0.01, 3.0, steps=400_000) == pytest.approx(drawn, abs=0.06)
    assert simulated_slowdown(64, 0.01, 3.0, steps=400_000) == pytest.approx(slowdown(64, 0.01, 3.0), abs=0.006)


def test_the_ends_of_the_formula() -> None:
    assert slowdown(1000, 0.0) == 1.0
    assert slowdown(1, 1.0, 3.0) == 3.0
    assert slowdown(1, 0.25, 3.0) == pytest.approx(1.5)
    assert slowdown(10_000, 1e-12) == pytest.approx(1 + 1e-8, rel=1e-12)


@pytest.mark.parametrize(
    ("ranks", "p", "factor", "steps"),
    [(0, 0.1, 2.0, 9), (10**9, 0.1, 2.0, 9), (8, -0.1, 2.0, 9), (8, 1.1, 2.0, 9), (8, 0.1, 0.9, 9), (8, 0.1, 2.0, 0)],
)
def test_figures_that_cannot_be(ranks: int, p: float, factor: float, steps: int) -> None:
    with pytest.raises(ValueError, match=r"ranks|share|slow step|steps"):
        simulated_slowdown(ranks, p, factor, steps=steps)


def test_the_expected_greatest_is_exact() -> None:
    # Two draws from 1, 2, 3, with replacement: 1 once, 2 three times, 3 five times of nine.
    assert expected_greatest([3.0, 1.0, 2.0], 2) == pytest.approx((1 + 6 + 15) / 9)
    assert expected_greatest([5.0], 100) == 5
    drawn = np.random.default_rng(1).exponential(size=50_000)
    assert expected_greatest(drawn, 100) == pytest.approx(sum(1 / k for k in range(1, 101)), rel=0.02)


def noisy(steps: int, ranks: int, p: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Own work of a second, of which half is not the rank's own to be late in; slow steps take 0.75 s longer."""
    slow = np.random.default_rng(seed).random((steps, ranks)) < p
    late_s = 1.0 + 0.75 * slow
    return late_s, late_s.max(axis=1) + 0.5


def test_noise_is_found_again_and_told_for_ten_times_the_ranks() -> None:
    late_s, step_s = noisy(1500, 32, 0.004, 1)
    noise = fit_noise(late_s, step_s, at_ranks=[64])
    assert noise is not None
    assert (noise.ranks, noise.steps, noise.seen) == (32, 1500, 48_000)
    assert noise.quiet_s == pytest.approx(1.5)
    assert noise.slow_ratio == pytest.approx(0.004, rel=0.2)
    assert noise.slow_factor == pytest.approx(1.5)
    assert noise.observed_slowdown == pytest.approx(np.mean(step_s) / 1.5)
    assert noise.formula_by_ranks is not None
    assert list(noise.slowdown_by_ranks) == [32, 64, 320]
    # What 320 such ranks do, simulated.
    _, more_s = noisy(1500, 320, 0.004, 2)
    assert noise.slowdown_by_ranks[320] == pytest.approx(np.mean(more_s) / 1.5, abs=0.03)
    assert noise.formula_by_ranks[320] == pytest.approx(noise.slowdown_by_ranks[320], abs=0.005)


def test_lasting_differences_and_common_slowness_are_no_noise() -> None:
    late_s = np.ones((100, 8))
    late_s[:, 3] += 0.4  # always slow
    late_s[40:] += 2.0  # a longer batch for all
    noise = fit_noise(late_s, late_s.max(axis=1) + 0.1)
    assert noise is not None
    assert (noise.slow_ratio, noise.slow_factor, noise.formula_by_ranks) == (0.0, None, None)
    assert noise.observed_slowdown == pytest.approx(1)
    assert list(noise.slowdown_by_ranks.values()) == pytest.approx([1, 1])


def test_ranks_that_are_slow_together_cost_less_than_chance_would() -> None:
    # A quarter of the ranks at once, in 1 step of 20: chance alone would spread that over nearly half of the steps.
    late_s = np.ones((1000, 40))
    late_s[::20, :10] += 1.0
    noise = fit_noise(late_s, late_s.max(axis=1))
    assert noise is not None
    assert noise.observed_slowdown == pytest.approx(1.05)
    assert noise.slowdown_by_ranks[40] > 1.3


def test_too_little_says_nothing() -> None:
    assert fit_noise(np.ones((100, 1)), np.ones(100)) is None
    assert fit_noise(np.ones((29, 4)), np.ones(29)) is None
    missing = np.ones((40, 4))
    missing[:20, 0] = np.nan
    assert fit_noise(missing, np.ones(40)) is None
