"""Says a few lines to the person who watches a training, without ever waiting for whoever reads them."""

from __future__ import annotations

import select
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from goodput.events import StopReason
from goodput.tally import Summary, ledger_line, summary_lines

_PIPE_BYTES = 4096


def say_summary(summary: Summary, reason: StopReason, *, spool: Path | None = None) -> None:
    """Rank 0 tells at a good end how its attempt went, and where its events are. Never raises."""
    if reason is StopReason.FINISHED and summary.rank == 0:
        say([*summary_lines(summary), *([] if spool is None else [ledger_line(summary.run, spool)])])


def say(lines: Iterable[str], stream: TextIO | None = None) -> None:
    """Print lines on stderr, each after `goodput: `. Nothing is said where it would have to be waited for."""
    try:
        out = sys.stderr if stream is None else stream
        if out is None or out.closed:
            return
        text = "".join(f"goodput: {line}\n" for line in lines)
        out.flush()
        if _has_room(out):
            # A pipe that is ready takes this much at once.
            out.write(text[:_PIPE_BYTES])
            out.flush()
    except Exception:
        # A terminal that has gone, a stream of the user's own: the summary is not worth an error.
        pass


def _has_room(stream: TextIO) -> bool:
    try:
        fd = stream.fileno()
    except (OSError, ValueError, AttributeError):
        return True  # Kept in memory by whoever replaced it.
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return any(event & select.POLLOUT for _, event in poll.poll(0))
