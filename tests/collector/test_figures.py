"""Numbers in words: nothing becomes zero, everything or known by rounding."""

import pytest

from goodput_collector.figures import GpuTime, counted, duration, moment, percent, plain

HOUR_S = 3600.0


@pytest.mark.parametrize(
    ("total_gpu_s", "gpu_s", "text"),
    [
        (480.0, 480.0, "480.0 GPU-seconds"),
        (99.0, 1.005, "1.00 GPU-seconds"),
        (35_999.0, 35_999.0, "35,999 GPU-seconds"),
        (36_000.0, 36_000.0, "10.00 GPU-hours"),
        (100 * HOUR_S, 90 * HOUR_S, "90.0 GPU-hours"),
        (20_000 * HOUR_S, 12_345.4 * HOUR_S, "12,345 GPU-hours"),
        (480.0, 0.0, "0.0 GPU-seconds"),
        (480.0, 0.02, "<0.1 GPU-seconds"),
        (10.0, 0.004, "<0.01 GPU-seconds"),
        (20_000 * HOUR_S, 0.3 * HOUR_S, "<1 GPU-hours"),
        (480.0, None, "unknown"),
    ],
)
def test_gpu_time(total_gpu_s: float, gpu_s: float | None, text: str) -> None:
    assert GpuTime.for_total(total_gpu_s).amount(gpu_s) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (None, "unknown"),
        (0.0, "0.0 %"),
        (1e-9, "<0.1 %"),
        (0.0005, "0.1 %"),
        (0.7, "70.0 %"),
        (0.99951, ">99.9 %"),
        (1 - 1e-12, ">99.9 %"),
        (1.0, "100.0 %"),
    ],
)
def test_percent(ratio: float | None, text: str) -> None:
    assert percent(ratio) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "unknown"),
        (0.0, "0 s"),
        (1e-6, "<1 ms"),
        (0.004, "4 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.00 s"),
        (9.994, "9.99 s"),
        (9.996, "10.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min"),
        (61.0, "1 min 1 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h"),
        (7260.0, "2 h 1 min"),
        (86_399.0, "23 h 59 min"),
        (86_400.0, "1 d"),
        (1_000_000.0, "11 d 13 h"),
    ],
)
def test_duration(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_moment_is_utc() -> None:
    assert moment(1_767_225_600_999_999_999) == "2026-01-01 00:00:00"
    assert moment(None) == "unknown"


def test_counted() -> None:
    assert [counted(0, "rank"), counted(1, "rank"), counted(2_000, "rank")] == ["0 ranks", "1 rank", "2,000 ranks"]


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert plain("a\x1b[31mb\n\u202ec") == "a\ufffd[31mb\ufffd\ufffdc"
    assert plain("größe 模型 🚀") == "größe 模型 🚀"
