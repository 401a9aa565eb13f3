"""The interpreter's own hooks: its exit, its uncaught exceptions, its forks. Chained, never replaced."""

from __future__ import annotations

import atexit
import os
import sys
from types import TracebackType

from goodput.events import StopReason
from goodput.recorder import LiveRecorder

_watched: list[LiveRecorder] = []
_installed = False
_previous = sys.excepthook


def watch(recorder: LiveRecorder) -> None:
    """Tell this recorder how the process ends."""
    global _installed, _previous
    # Of those that ended only the latest is still asked for something: when that was.
    ended = [known for known in _watched if not known.active]
    _watched[:] = [known for known in _watched if known.active] + sorted(ended, key=_end_ns)[-1:] + [recorder]
    if not _installed:
        _installed = True
        atexit.register(_at_exit)
        os.register_at_fork(after_in_child=_in_child)
        # Once: put on top of a hook that calls ours, the two would call each other for ever.
        _previous = sys.excepthook
        sys.excepthook = _uncaught


def earliest_start_ns(process_start_ns: int, now_ns: int) -> int:
    """Since when a recorder that begins now has the process for itself: since the process began, since the recorder
    before it ended, or since now while another one records."""
    if any(recorder.active for recorder in _watched):
        return now_ns
    # Never later than now: each recorder read the wall clock for itself.
    return min(max([process_start_ns, *map(_end_ns, _watched)]), now_ns)


def _end_ns(recorder: LiveRecorder) -> int:
    return recorder.ended_ns or 0


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    for recorder in list(_watched):
        if recorder.active:
            recorder.left_by(error)
            recorder.stop(StopReason.EXCEPTION)
    _previous(kind, error, trace)


def _at_exit() -> None:
    for recorder in list(_watched):
        recorder.stop(StopReason.EXITED)


def _in_child() -> None:
    for recorder in _watched:
        recorder.abandon()
    _watched.clear()
