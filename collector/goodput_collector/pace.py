"""How fast one stream may come: a bucket that fills by the second, for each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

_STREAMS_HELD = 100_000


class Pace:
    """Slows down a stream that brings more than `bytes_per_s`; what it is refused it still has, and sends later.

    A stream may be ahead of its time by `burst_s`. One that asks for more than a whole bucket waits till it is full.
    """

    def __init__(
        self, bytes_per_s: float, *, burst_s: float = 4.0, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._bytes_per_s = bytes_per_s
        self._burst_s = burst_s
        self._clock_s = clock_s
        # When each stream's bucket will be full again; one that is full is not held.
        self._full_s: dict[str, float] = {}

    def wait_s(self, stream: str, size_bytes: int) -> float:
        """Takes so many bytes of a stream and gives 0; or takes none, and says after how many seconds to come again."""
        return self.waits_s([(stream, size_bytes)])[0]

    def waits_s(self, wanted: Iterable[tuple[str, int]]) -> list[float]:
        """The same for each (stream, size in bytes), one after the other."""
        now = self._clock_s()
        held, bytes_per_s, burst_s = self._full_s, self._bytes_per_s, self._burst_s
        waits: list[float] = []
        for stream, size_bytes in wanted:
            full = held.get(stream, now)
            if full < now:
                full = now
            needs_s = size_bytes / bytes_per_s
            late_s = full - now + needs_s - burst_s
            if late_s > 0 and full > now:
                waits.append(min(late_s, full - now))
                continue
            if len(held) >= _STREAMS_HELD:
                self._full_s = held = {name: until for name, until in held.items() if until > now}
            if len(held) < _STREAMS_HELD:
                held[stream] = full + needs_s
            waits.append(0.0)
        return waits
