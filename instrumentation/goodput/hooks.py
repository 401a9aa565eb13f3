"""The interpreter's own hooks: its exit, its uncaught exceptions, its forks. Chained, never replaced."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from types import TracebackType

from goodput.events import StopReason
from goodput.recorder import LiveRecorder

_watched: list[LiveRecorder] = []
_changing = threading.Lock()
_installed = False
_previous = sys.excepthook


def watch(recorder: LiveRecorder) -> None:
    """Tell this recorder how the process ends."""
    global _installed, _previous
    with _changing:
        # Of those that ended only the latest is still asked for something: when that was.
        active = [known for known in _watched if known.active]
        ended = [known for known in _watched if known not in active]
        _watched[:] = active + sorted(ended, key=_end_ns)[-1:] + [recorder]
        if _installed:
            return
        _installed = True
        atexit.register(_at_exit)
        os.register_at_fork(after_in_child=_in_child)
        # Once: put on top of a hook that calls ours, the two would call each other for ever.
        _previous = sys.excepthook
        sys.excepthook = _uncaught


def recording() -> LiveRecorder | None:
    """The recorder that this process began last and has not ended, for adapters that join it; None for none."""
    for recorder in reversed(list(_watched)):
        if recorder.active:
            return recorder
    return None


def recorded_before() -> bool:
    """This program has recorded already."""
    return bool(_watched)


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
    if not _at_prompt():
        _stop_all(StopReason.EXCEPTION, error)
    _previous(kind, error, trace)


def _ended_by() -> BaseException | None:
    """The exception that ends this process, where a hook put in place of ours kept it from us; None for none.

    The interpreter keeps an uncaught exception before it calls the hook, whichever that is. Consoles and test runners
    keep there what they caught, which ends nothing: what left the outermost frame was caught by nobody. At a prompt
    each line is an outermost frame, and the process goes on.
    """
    error: object = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    trace: object = getattr(sys, "last_traceback", None)
    if not isinstance(error, BaseException) or not isinstance(trace, TracebackType):
        return None
    return None if trace.tb_frame.f_back is not None or _at_prompt() else error


def _at_prompt() -> bool:
    """A person types: each line is an outermost frame, and the process goes on after an exception."""
    return bool(sys.flags.interactive) or hasattr(sys, "ps1")


def _at_exit() -> None:
    _stop_all(StopReason.EXITED, _ended_by())


def end_all(reason: StopReason) -> None:
    """End all records of this process, which is about to leave without the interpreter's own hooks."""
    _stop_all(reason, None)


def _stop_all(reason: StopReason, error: BaseException | None) -> None:
    recorders = [recorder for recorder in list(_watched) if recorder.active]
    for recorder in recorders:
        if error is not None and recorder.outcome is None:
            recorder.left_by(error)
        # All of them first: they write at the same time, and one whose disk stands does not keep the others.
        recorder.stop(reason, wait=False)
    patient = True
    for recorder in recorders:
        # Each that comes to its end shows that the disk still takes something; one that does not is waited for once.
        patient = recorder.wait_closed(patient) and patient


def _in_child() -> None:
    global _changing
    # Another thread of the parent may have held it.
    _changing = threading.Lock()
    for recorder in _watched:
        recorder.abandon()
    _watched.clear()
