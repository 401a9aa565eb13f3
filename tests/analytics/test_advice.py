"""Young's and Daly's intervals, at figures worked out elsewhere."""

from __future__ import annotations

import pytest

from goodput_analytics.advice import daly_s, young_s


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
