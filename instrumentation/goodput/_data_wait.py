"""How long a training thread waits in its framework's own loader."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident

from goodput._adapters import guard, span_open
from goodput.recorder import LiveRecorder

_by_recorder: dict[int, DataWait] = {}
_all: tuple[DataWait, ...] = ()


class DataWait:
    """The waits of one recorder's training thread, told by whatever wraps the loader.

    A wait inside a declared span is the span's. A loop that measures its input itself (`rec.data`) is left to it:
    the same wait must not count twice.

    Attributes:
        begun_ns: when the last wait began, None before the first one.
        came: called when a wait outside all spans has given something.
    """

    __slots__ = ("_inside", "_left_to_loop", "_rec", "_thread", "begun_ns", "came")

    def __init__(self, rec: LiveRecorder) -> None:
        self._rec = rec
        self._thread = get_ident()
        self._inside = False
        self._left_to_loop = False
        self.begun_ns: int | None = None
        self.came: Callable[[], None] | None = None

    @property
    def active(self) -> bool:
        return self._rec.active

    def moved_to_this_thread(self) -> None:
        """The loop runs on the thread that calls this."""
        self._thread = get_ident()

    def begin(self) -> int | None:
        """A wait begins; gives what `end` wants, None when this one does not count."""
        try:
            rec = self._rec
            if self._inside or self._left_to_loop or rec.ended_ns is not None or get_ident() != self._thread:
                return None
            if rec.steps.fetching_ns is not None:
                self._left_to_loop = True
                return None
            if rec.in_span and span_open(rec) is not None:
                return None
            self._inside = True
            self.begun_ns = since = rec.steps.fetch()
            return since
        except Exception as error:
            guard.caught("a wait for input could not be recorded", error)
            return None

    def end(self, since_ns: int | None, came: bool) -> None:
        """The wait is over; `came`: it gave a batch."""
        if since_ns is None:
            return
        try:
            self._inside = False
            self._rec.steps.fetched(since_ns)
            if came and self.came is not None:
                self.came()
        except Exception as error:
            guard.caught("a wait for input could not be recorded", error)


def data_wait_of(rec: LiveRecorder) -> DataWait:
    """The one measurement of this recorder's waits, whoever asks for it."""
    global _all
    for key, known in list(_by_recorder.items()):
        if not known.active:
            _by_recorder.pop(key, None)
    found = _by_recorder.setdefault(id(rec), DataWait(rec))
    # A new one each time: whoever goes through the old one meanwhile is not disturbed.
    _all = tuple(_by_recorder.values())
    return found


def waits() -> tuple[DataWait, ...]:
    """All that measure."""
    return _all
