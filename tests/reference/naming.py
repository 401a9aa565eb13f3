"""Naming: which ranks were slow often enough to be told by name."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from .line import Line
from .windows import Course


@dataclass(kw_only=True)
class Names:
    """Named ranks by attempt, with the number of steps in which each was the latest."""

    slowest_steps: dict[tuple[int, int], int]  # (attempt, rank)

    def is_named(self, attempt: int, rank: int) -> bool:
        return (attempt, rank) in self.slowest_steps


def name(courses: list[Course], line: Line) -> Names:
    """k of s kept steps with a straggler part, n ranks: k >= 5 and k > s/n + 3 sqrt(s/n (1 - 1/n)), in integers."""
    out: dict[tuple[int, int], int] = {}
    for c in courses:
        split = [w for w in c.windows if w.applied and line.kept_of(w) > 0 and w.straggler_ns > 0]
        s = len(split)
        n = max((len(w.lateness_ns) for w in split), default=1)
        for rank, k in Counter(w.latest_rank for w in split).items():
            over = k * n - s
            if rank is not None and k >= 5 and over > 0 and over * over > 9 * s * (n - 1):
                out[c.attempt.number, rank] = k
    return Names(slowest_steps=out)
