"""How long a GPU's stream waited for other ranks, by events that are read when they are ready and never waited for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

MOST_PAIRS = 4096
"""So many waits that are not over yet are kept in mind; beyond it (a GPU that stands still) new ones are left out."""


class Event(Protocol):
    """What is used of `torch.cuda.Event(enable_timing=True)`. None of these calls waits for the GPU."""

    def record(self) -> Any: ...
    def query(self) -> bool: ...
    def elapsed_time(self, end: Any) -> float: ...


class StreamWaits:
    """The waits of one rank's compute stream.

    An event is recorded on the stream before it is told to wait for a collective, and one after. The first comes up
    when all own work before it is done, the second when the collective is: what lies between is waiting for others. A
    pair is read at the end of a step, at the first at which both have come up: the thread that trains runs ahead of its
    GPU, and a step's time on that thread contains what the GPU went through meanwhile. So the sum is right over any
    stretch of steps; in a loop that reads a value from the GPU in every step, it is right in each of them.

    Args:
        event: makes an event that keeps the time.
        ready: whether events can be recorded here and now: on the stream that computes, and while no graph is captured.
        waited: takes the nanoseconds of waits that were seen to be over, 0 for none.
        now_ns: the time.
    """

    def __init__(
        self,
        *,
        event: Callable[[], Event],
        ready: Callable[[], bool],
        waited: Callable[[int], None],
        now_ns: Callable[[], int],
    ) -> None:
        self._event = event
        self._ready = ready
        self._waited = waited
        self._now_ns = now_ns
        self._pairs: deque[tuple[Event, Event]] = deque()
        self._spare: list[Event] = []
        self._measured = False
        self._seen: tuple[Event, int] | None = None

    def begin(self) -> Event | None:
        """The stream is about to be told to wait; gives what `end` wants."""
        if len(self._pairs) >= MOST_PAIRS or not self._ready():
            return None
        event = self._spare.pop() if self._spare else self._event()
        event.record()
        return event

    def end(self, begun: Event | None) -> None:
        """It has been told."""
        if begun is None:
            return
        if not self._ready():
            self._spare.append(begun)
            return
        event = self._spare.pop() if self._spare else self._event()
        event.record()
        self._pairs.append((begun, event))
        self._measured = True

    def read(self) -> None:
        """A step ends: tell what is over."""
        if not self._measured:
            return
        spent_ns = 0
        pairs = self._pairs
        while pairs and pairs[0][1].query():
            begun, event = pairs.popleft()
            spent_ns += round(begun.elapsed_time(event) * 1e6)
            self._spare += (begun, event)
        self._waited(spent_ns)

    def drop(self) -> None:
        """What is not over yet lies in no step: a span begins or ends."""
        self._pairs.clear()

    def since(self) -> int | None:
        """Since when the stream waits, to the nearest look at it; None while it has own work to do. From any thread."""
        try:
            begun, event = self._pairs[0]
            # The oldest that is not over.
            if event.query() or not begun.query():
                self._seen = None
                return None
        except IndexError:
            return None
        seen = self._seen
        if seen is None or seen[0] is not begun:
            self._seen = seen = (begun, self._now_ns())
        return seen[1]
