"""Where lines are handed over."""

from __future__ import annotations

from collections.abc import Callable

from goodput.guard import Guard
from goodput.memory import HALF_BYTES, Memory

LINE_MAX_BYTES = HALF_BYTES // 4


def _nowhere(line: bytes, /) -> int:
    """Where lines go that nobody may write any more."""
    return 0


class Outlet:
    """The memory's half that takes lines now.

    Attributes:
        write: takes a line, or raises ValueError where it has no room; then `write_elsewhere` is the one to ask.
            Hot paths call it directly: it is the half's own C function, one atomic call without a system call.
    """

    __slots__ = ("_guard", "_memory", "write")

    def __init__(self, memory: Memory, guard: Guard) -> None:
        self._memory = memory
        self._guard = guard
        self.write: Callable[[bytes], int] = memory.halves[0].write

    def emit(self, line: bytes) -> None:
        """Hand a line over. One that finds no room is counted."""
        if len(line) > LINE_MAX_BYTES:
            self._drop("event is too long")
            return
        try:
            self.write(line)
        except ValueError:
            self.write_elsewhere(line)

    def write_elsewhere(self, line: bytes) -> None:
        """Go on in the other half; a line that finds no room there either is counted."""
        if self.emit_last(line):
            if self.write is not _nowhere:
                self.write = self._memory.halves[self._memory.generation & 1].write
        elif not self._memory.closed:
            self._drop("memory was full")

    def emit_last(self, line: bytes) -> bool:
        """Hand over a line of the recorder itself, even when the outlet is shut. False when it had no room."""
        return len(line) <= LINE_MAX_BYTES and self._memory.write_or_swap(line)

    def _drop(self, reason: str) -> None:
        self._guard.drop(reason)
        self._memory.note_lost(self._guard.untold_count())

    def shut(self) -> None:
        """Take nothing more, and say nothing of it."""
        self.write = _nowhere
