"""Thresholds are checked where they are given."""

from __future__ import annotations

import pytest

from goodput_analytics import Settings

LIMITS = ("hang_floor_ns", "span_floor_ns", "silence_ns", "stepless_ns", "lost_ns", "overlap_ns")


@pytest.mark.parametrize("name", LIMITS)
def test_no_threshold_is_negative(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Settings(**{name: -1})
    assert getattr(Settings(**{name: 0}), name) == 0


@pytest.mark.parametrize("wrong", [0, -1])
def test_an_expected_step_takes_time(wrong: int) -> None:
    with pytest.raises(ValueError, match="expected_step_ns"):
        Settings(expected_step_ns=wrong)
    assert Settings(expected_step_ns=1).expected_step_ns == 1


def test_the_defaults_are_those_that_the_documents_name() -> None:
    s = 1_000_000_000
    assert [getattr(Settings(), name) for name in LIMITS] == [10 * s, 60 * s, 60 * s, 1800 * s, 600 * s, 60 * s]
    assert Settings().expected_step_ns is None
