"""Numbers as a person reads them: GPU time, shares, durations, moments. What is not known is said to be unknown."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime

UNKNOWN = "unknown"
GPU_S_PER_GPU_HOUR = 3600.0
NS_PER_S = 1_000_000_000
# Below this total a report speaks of GPU-seconds: ten GPU-hours, above which a GPU-second is no longer of interest.
SMALL_TOTAL_GPU_S = 36_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTime:
    """How one report writes GPU time: one unit and one number of decimals throughout, so that its columns compare."""

    word: str
    short: str
    gpu_s_per_unit: float
    decimals: int

    @classmethod
    def for_total(cls, total_gpu_s: float) -> GpuTime:
        """The unit that suits a report whose GPU time is `total_gpu_s` in all."""
        if total_gpu_s >= SMALL_TOTAL_GPU_S:
            return cls.hours(total_gpu_s)
        return cls(word="GPU-seconds", short="GPU-s", gpu_s_per_unit=1.0, decimals=_decimals(total_gpu_s))

    @classmethod
    def hours(cls, total_gpu_s: float) -> GpuTime:
        """GPU-hours, with decimals that suit `total_gpu_s`."""
        decimals = _decimals(total_gpu_s / GPU_S_PER_GPU_HOUR)
        return cls(word="GPU-hours", short="GPU-h", gpu_s_per_unit=GPU_S_PER_GPU_HOUR, decimals=decimals)

    def number(self, gpu_s: float | None) -> str:
        """The bare number. A figure too small to show is written `<0.1`, never 0."""
        if gpu_s is None:
            return UNKNOWN
        value = gpu_s / self.gpu_s_per_unit
        text = f"{value:,.{self.decimals}f}"
        if value > 0 and float(text.replace(",", "")) == 0:
            return f"<{10**-self.decimals:.{self.decimals}f}"
        return text

    def amount(self, gpu_s: float | None) -> str:
        """The number with its unit."""
        return UNKNOWN if gpu_s is None else f"{self.number(gpu_s)} {self.word}"


def _decimals(total: float) -> int:
    return 0 if total >= 10_000 else 1 if total >= 100 else 2


def percent(ratio: float | None) -> str:
    """A ratio from 0 to 1 as per cent. Rounding never makes something of nothing, or all of almost all."""
    if ratio is None:
        return UNKNOWN
    text = f"{100 * ratio:.1f}"
    if ratio > 0 and text == "0.0":
        return "<0.1 %"
    if ratio < 1 and text == "100.0":
        return ">99.9 %"
    return f"{text} %"


def duration(seconds: float | None) -> str:
    """A length of time in the two units that matter: `42 ms`, `12.3 s`, `27 min 3 s`, `2 h 5 min`, `3 d 4 h`."""
    if seconds is None:
        return UNKNOWN
    if seconds < 0.9995:
        return "0 s" if seconds == 0 else "<1 ms" if seconds < 0.0005 else f"{1000 * seconds:.0f} ms"
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for big, big_s, small, small_s in (("min", 60, "s", 1), ("h", 3600, "min", 60), ("d", 86_400, "h", 3600)):
        rounded = whole // small_s * small_s
        if rounded < {"min": 3600, "h": 86_400}.get(big, float("inf")):
            rest = rounded % big_s // small_s
            return f"{rounded // big_s} {big} {rest} {small}" if rest else f"{rounded // big_s} {big}"
    raise AssertionError("days hold every duration")


def moment(ns: int | None) -> str:
    """A point in time, in UTC, to the second."""
    if ns is None:
        return UNKNOWN
    return datetime.fromtimestamp(ns // NS_PER_S, UTC).strftime("%Y-%m-%d %H:%M:%S")


def counted(number: int, one: str, many: str | None = None) -> str:
    """`1 rank`, `2 ranks`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def name(text: str, most: int = 80) -> str:
    """A name from an event file, safe to print; one longer than `most` loses its middle, for its ends tell it apart."""
    text = plain(text)
    if len(text) <= most:
        return text
    front = (most - 3) // 2
    return f"{text[:front]}...{text[front + 3 - most :]}"


def plain(text: str) -> str:
    """Text from an event file, made safe to print: a control character must not move the reader's cursor."""
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c)[0] == "C" else c for c in text)
