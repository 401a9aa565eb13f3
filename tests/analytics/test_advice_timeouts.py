"""The collective timeout: its risk against distributions that are known."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from goodput_analytics.timeouts import (
    DAYS_30_S,
    FLOOR_S,
    UNKNOWN_TIMES,
    advise_timeout,
    quantile_beyond,
)


def exponential(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.exponential(1.0, n)


def lognormal(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.lognormal(0.0, 0.5, n)


def uniform(rng: np.random.Generator, n: int) -> np.ndarray:
    return 1.0 + rng.random(n)


BEYOND: dict[Callable[..., np.ndarray], Callable[[float], float]] = {
    exponential: lambda x: math.exp(-x),
    lognormal: lambda x: 0.5 * math.erfc(math.log(x) / 0.5 / math.sqrt(2)),
    uniform: lambda x: max(2.0 - x, 0.0),
}


@pytest.mark.parametrize("draw", BEYOND)
@pytest.mark.parametrize("count", [50, 2000])
def test_a_stated_chance_is_about_what_it_really_is(draw: Callable[..., np.ndarray], count: int) -> None:
    rng = np.random.default_rng(4)
    for chance in (1e-2, 1e-4, 1e-6):
        told = [quantile_beyond(np.sort(draw(rng, count)), chance) for _ in range(150)]
        real = [BEYOND[draw](length) for length in told if length is not None]
        assert len(real) >= 0.97 * len(told)
        assert np.mean(real) < 10 * chance
        assert np.median(real) < 3 * chance


def test_it_does_not_ask_for_more_than_it_must() -> None:
    rng = np.random.default_rng(5)
    told = [quantile_beyond(np.sort(rng.exponential(1.0, 2000)), 1e-6) or np.nan for _ in range(50)]
    assert np.median(told) < 1.4 * -math.log(1e-6)


def test_never_less_than_was_seen_and_monotone_in_the_risk() -> None:
    seen = [*(-math.log((80 - i) / 80) for i in range(80)), 7.0]
    told = [quantile_beyond(seen, chance) or 0.0 for chance in (0.5, 0.01, 1e-4, 1e-8)]
    assert told == sorted(told) and told[0] >= 7.0
    assert quantile_beyond([3.0] * 50, 1e-9) == 3.0
    assert (quantile_beyond([1.0, 2.0], 0.5) or 0.0) >= 2.0


def bursts(slow: int, count: int = 1600) -> np.ndarray:
    """Steps of about a second, of which so many do something else as well and take about fifteen."""
    rng = np.random.default_rng(8)
    lengths = np.exp(rng.normal(0.0, 0.03, count))
    lengths[:slow] = 15.0 * np.exp(rng.normal(0.0, 0.05, slow))
    return np.sort(lengths)


@pytest.mark.parametrize("slow", [60, 120, 400])
def test_steps_of_two_sorts_ask_for_little_more_than_the_longest_sort(slow: int) -> None:
    told = quantile_beyond(bursts(slow), 1e-7)
    assert told is not None
    # A further one of the sort is beyond 22.5 s, eight deviations, in less than one case in 10 to the 15.
    assert bursts(slow)[-1] < told < 3 * 15.0


@pytest.mark.parametrize("slow", [3, 8])
def test_a_few_that_are_far_from_all_others_tell_no_risk(slow: int) -> None:
    lengths = bursts(slow)
    assert quantile_beyond(lengths, 1e-7) is None
    told = advise_timeout({"step": lengths}, running_s=float(np.sum(lengths)))
    assert told is not None
    assert (told.timeout_s, told.risk_ratio) == (UNKNOWN_TIMES * lengths[-1], None)


def test_the_kind_that_asks_for_most_decides_and_shares_the_risk() -> None:
    rng = np.random.default_rng(6)
    silences = {"step": 1 + rng.exponential(0.1, 5000), "checkpoint": 20 + rng.exponential(5.0, 100)}
    told = advise_timeout(silences, running_s=10_000.0, risk_ratio=0.02)
    assert told is not None
    assert [k.kind for k in told.kinds] == ["checkpoint", "step"]
    assert told.timeout_s == told.kinds[0].timeout_s
    assert told.risk_ratio == 0.02
    # Half of the risk for saves, of which there are 100 in 10,000 s.
    chance = 0.01 / (100 / 10_000 * DAYS_30_S)
    assert told.timeout_s == quantile_beyond(np.sort(silences["checkpoint"]), chance)
    safer = advise_timeout(silences, running_s=10_000.0, risk_ratio=0.0002)
    assert safer is not None and safer.timeout_s > told.timeout_s


def test_too_few_of_a_kind_leave_the_risk_open() -> None:
    told = advise_timeout({"step": [1.0] * 100, "checkpoint": [30.0, 40.0]}, running_s=1000.0)
    assert told is not None
    assert (told.timeout_s, told.risk_ratio) == (UNKNOWN_TIMES * 40.0, None)


def test_equal_steps_do_not_ask_for_the_impossible() -> None:
    told = advise_timeout({"step": [0.5] * 100}, running_s=50.0, recovered_stalls_s=[400.0, 9.0])
    assert told is not None
    assert (told.timeout_s, told.kinds[0].timeout_s, told.cut_stalls) == (FLOOR_S, 0.5, 1)


def test_nothing_seen_and_nonsense() -> None:
    assert advise_timeout({}, running_s=10.0) is None
    assert advise_timeout({"step": []}, running_s=10.0) is None
    assert advise_timeout({"step": [1.0]}, running_s=0.0) is None
    for risk in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="risk"):
            advise_timeout({"step": [1.0]}, running_s=1.0, risk_ratio=risk)
    with pytest.raises(ValueError, match="over_s"):
        advise_timeout({"step": [1.0]}, running_s=1.0, over_s=0.0)
