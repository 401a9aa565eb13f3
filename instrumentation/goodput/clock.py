"""The source's clock: the wall clock read once, then the monotonic clock."""

from __future__ import annotations

import time
from collections.abc import Callable


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
        before = monotonic_ns()
        wall = wall_ns()
        self.monotonic_ns = monotonic_ns
        self.offset_ns = wall - (before + monotonic_ns()) // 2

    def now_ns(self) -> int:
        return self.monotonic_ns() + self.offset_ns
