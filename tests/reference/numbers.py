"""Integer medians and interval arithmetic. All times and durations are nanoseconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Interval = tuple[int, int]


def median(values: Sequence[int]) -> int | None:
    """The median; of an even number the mean of the two middle values, rounded down. None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    half = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[half]
    return (ordered[half - 1] + ordered[half]) // 2


def lower_median(values: Sequence[int]) -> int:
    """The middle value, of an even number the smaller of the two."""
    return sorted(values)[(len(values) - 1) // 2]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same time as separate intervals in order."""
    merged: list[Interval] = []
    for start, end in sorted(i for i in intervals if i[1] > i[0]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def covered(start: int, end: int, intervals: Iterable[Interval]) -> int:
    """How much of [start, end) the intervals cover together."""
    return sum(max(0, min(end, b) - max(start, a)) for a, b in union(intervals))
