"""The source's clock: the wall clock read once, then the monotonic clock."""

from __future__ import annotations

import time
from collections.abc import Callable


def ahead_ns(clock: Callable[[], int], other: Callable[[], int]) -> int:
    """How far a clock is ahead of another, read at one moment: the tightest of a few tries, since the process may be
    put aside between two readings."""
    tries = []
    for _ in range(5):
        before = other()
        here = clock()
        after = other()
        tries.append((after - before, here - (before + after) // 2))
    return min(tries)[1]


class Clock:
    """Nanoseconds since the epoch that an adjustment of the wall clock cannot move.

    Attributes:
        monotonic_ns: the monotonic clock.
        offset_ns: what to add to it for the epoch's nanoseconds.

    Hot paths add the two themselves; everyone else calls `now_ns`.
    """

    __slots__ = ("monotonic_ns", "offset_ns")

    def __init__(
        self,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.monotonic_ns = monotonic_ns
        self.offset_ns = ahead_ns(wall_ns, monotonic_ns)

    def now_ns(self) -> int:
        return self.monotonic_ns() + self.offset_ns
