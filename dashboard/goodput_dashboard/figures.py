"""Numbers as a person reads them: GPU time, shares, durations, moments. What is not known is said to be unknown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

UNKNOWN = "unknown"
NS_PER_S = 1_000_000_000
GPU_S_PER_GPU_H = 3600.0
HOURS_FROM_GPU_S = 36_000.0
"""From ten GPU-hours on a page speaks of hours: below that, of GPU-seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """The one unit, and the one number of decimals, in which a page writes GPU time, so that its figures compare."""

    short: str
    gpu_s: float
    decimals: int

    def number(self, gpu_s: float | None) -> str:
        """Without the unit. What is too small to show is written `<0.1`, never 0."""
        if gpu_s is None:
            return UNKNOWN
        value = gpu_s / self.gpu_s
        text = f"{value:,.{self.decimals}f}"
        if value > 0 and not text.strip("0.,"):
            return f"<{10.0**-self.decimals:.{self.decimals}f}"
        return text

    def amount(self, gpu_s: float | None) -> str:
        """With the unit."""
        return UNKNOWN if gpu_s is None else f"{self.number(gpu_s)} {self.short}"

    def value(self, gpu_s: float | None) -> float | None:
        """The figure itself in the unit, for axes and for columns that sort."""
        return None if gpu_s is None else gpu_s / self.gpu_s

    @property
    def column(self) -> str:
        """A format for a column of figures."""
        return f"%,.{self.decimals}f"


def unit_for(total_gpu_s: float) -> Unit:
    """The unit that suits figures which add up to `total_gpu_s`."""
    if total_gpu_s >= HOURS_FROM_GPU_S:
        return hours_for(total_gpu_s)
    return Unit(short="GPU-s", gpu_s=1.0, decimals=_decimals(total_gpu_s))


def hours_for(total_gpu_s: float) -> Unit:
    """GPU-hours, with decimals that suit `total_gpu_s`."""
    return Unit(short="GPU-h", gpu_s=GPU_S_PER_GPU_H, decimals=_decimals(total_gpu_s / GPU_S_PER_GPU_H))


def _decimals(total: float) -> int:
    if total >= 10_000:
        return 0
    return 1 if total >= 100 else 2


def percent(ratio: float | None) -> str:
    """A ratio as per cent; rounding never makes something of nothing, or all of almost all."""
    if ratio is None:
        return UNKNOWN
    text = f"{100 * ratio:.1f}"
    if text == "0.0" and ratio > 0:
        return "<0.1 %"
    if text == "100.0" and ratio < 1:
        return ">99.9 %"
    return f"{text} %"


def duration(seconds: float | None) -> str:
    """A length of time in the two units that matter."""
    if seconds is None:
        return UNKNOWN
    if seconds == 0:
        return "0 s"
    if seconds < 0.0005:
        return "<1 ms"
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return _two(whole, 60, "min", 1, "s")
    if (minutes := whole // 60 * 60) < 86_400:
        return _two(minutes, 3600, "h", 60, "min")
    return _two(whole // 3600 * 3600, 86_400, "d", 3600, "h")


def _two(whole: int, big_s: int, big: str, small_s: int, small: str) -> str:
    count, rest = whole // big_s, whole % big_s // small_s
    return f"{count} {big} {rest} {small}" if rest else f"{count} {big}"


def when(ns: int | None, zone: tzinfo = UTC) -> str:
    """A point in time, to the second, in the chosen zone."""
    if ns is None:
        return UNKNOWN
    return datetime.fromtimestamp(ns // NS_PER_S, zone).strftime("%Y-%m-%d %H:%M:%S")


def moment(ns: int, zone: tzinfo = UTC) -> datetime:
    """A point in time as axes and tables take it: the wall clock of the chosen zone, to the microsecond."""
    whole, rest = divmod(ns, NS_PER_S)
    return datetime.fromtimestamp(whole, zone).replace(tzinfo=None, microsecond=rest // 1000)


def counted(number: int, one: str, many: str | None = None) -> str:
    """`1 rank`, `2 ranks`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def money(gpu_s: float | None, price_per_gpu_h: float) -> str:
    """What GPU time costs."""
    if gpu_s is None:
        return UNKNOWN
    cost = gpu_s / GPU_S_PER_GPU_H * price_per_gpu_h
    return f"{cost:,.0f}" if cost >= 100 else f"{cost:,.2f}"


def plain(text: str) -> str:
    """Text from an event file, safe inside Markdown: its marks are shown and do nothing."""
    escaped = "".join(f"\\{c}" if c in "\\`*_{}[]()<>#+-.!|~$:" else c for c in text)
    return re.sub(r"\s+", " ", escaped)
