"""How long a run's saves block its loop: the spread, and whether they grow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

RECENT = 10
"""Saves that count as recent."""
LEAST_FOR_TREND = 20
TREND_Z = 3.0
_MOST_COMPARED = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveTimes:
    """The time that saves block the loop (delta), in seconds.

    Attributes:
        count: saves that became durable.
        mean_s, p50_s, p90_s, p99_s, max_s: over all of them.
        recent_s: the mean of the RECENT last.
        trend_ratio: recent over all before; None with fewer than LEAST_FOR_TREND saves.
        trending: whether they grow or shrink with time, beyond chance (Mann 1945, Kendall 1975; three deviations).
        async_ratio: the share of them that went on in the background.
        write_s: of those, how long on average until they were durable; 0 where there were none.
    """

    count: int
    mean_s: float
    p50_s: float
    p90_s: float
    p99_s: float
    max_s: float
    recent_s: float
    trend_ratio: float | None
    trending: bool
    async_ratio: float
    write_s: float

    @property
    def checkpoint_s(self) -> float:
        """What the next save is expected to block: the recent mean where there is a trend, else the mean of all."""
        return self.recent_s if self.trending else self.mean_s


def save_times(blocking_s: Sequence[float], writes_s: Sequence[float | None]) -> SaveTimes | None:
    """The spread of saves in order of time; None without any.

    Args:
        blocking_s: how long each blocked the loop.
        writes_s: how long each went on in the background after that; None for a save that blocked to its end.
    """
    if not blocking_s:
        return None
    ordered, recent = sorted(blocking_s), blocking_s[-RECENT:]
    earlier = blocking_s[:-RECENT]
    background = [write for write in writes_s if write is not None]
    recent_s = sum(recent) / len(recent)
    trend_ratio = None
    if len(blocking_s) >= LEAST_FOR_TREND and sum(earlier) > 0:
        trend_ratio = recent_s / (sum(earlier) / len(earlier))
    return SaveTimes(
        count=len(blocking_s),
        mean_s=sum(blocking_s) / len(blocking_s),
        p50_s=_quantile(ordered, 0.5),
        p90_s=_quantile(ordered, 0.9),
        p99_s=_quantile(ordered, 0.99),
        max_s=ordered[-1],
        recent_s=recent_s,
        trend_ratio=trend_ratio,
        trending=trend_ratio is not None and abs(kendall_z(blocking_s[-_MOST_COMPARED:])) > TREND_Z,
        async_ratio=len(background) / len(blocking_s),
        write_s=sum(background) / len(background) if background else 0.0,
    )


def kendall_z(values: Sequence[float]) -> float:
    """How far the order of values in time is from chance, in standard deviations; positive where they grow."""
    n = len(values)
    if n < 3:
        return 0.0
    score = sum((later > value) - (later < value) for i, value in enumerate(values) for later in values[i + 1 :])
    return score / math.sqrt(n * (n - 1) * (2 * n + 5) / 18.0)


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The least value that at least `share` of them reach no further than."""
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]
