"""Which lines of a stream name its run and source, so that one damaged line costs little."""

from __future__ import annotations

from goodput.events import naming_prefix

EVERY_LINES = 256
"""About so many lines follow on one that names its run and source."""


class Names:
    """Names a source's lines now and then. What a reader carries over ends with a line that it cannot read.

    Attributes:
        prefix: what a naming line begins with instead of its `{`.
        due_seq: an event with this number or a later one is to name. Hot paths compare first.
    """

    __slots__ = ("due_seq", "prefix")

    def __init__(self, run: str, source: str) -> None:
        self.prefix = naming_prefix(run, source)
        self.due_seq = 0

    def put(self, seq: int, line: bytes) -> bytes:
        """The line of this event, with the names when it is time for them."""
        due = seq >= self.due_seq
        if due:
            self.due_seq = seq + EVERY_LINES
        if b"\\" in line:
            # Text beyond plain ASCII is the only part of a line that readers may disagree about.
            self.due_seq = 0
        return self.prefix + line[1:] if due else line
