"""What the adapters of training frameworks share: joining a recorder, and wrapping calls that nothing hooks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, TypeVar

from goodput import hooks
from goodput.guard import Guard
from goodput.protocol import Recorder
from goodput.recorder import LiveRecorder
from goodput.starting import start

P = ParamSpec("P")
R = TypeVar("R")

guard = Guard()
"""Takes what goes wrong in an adapter: counted, logged once per reason, never raised into training."""

_OURS = __file__.removesuffix("_adapters.py")
_OUTSIDE_SPANS = frozenset({"step", "waiting", "between"})


def join(rec: Recorder | None, run: str | None = None, job: str | None = None) -> tuple[Recorder, bool]:
    """The recorder that an adapter speaks to, and whether the adapter began it (and so has to finish it).

    It is the one given, else the one that this process has begun already, else a new one, of that job.
    """
    if rec is not None:
        return rec, False
    known = hooks.recording()
    if known is not None and run in (None, known.run):
        return known, False
    return start(run, job=job), True


def live(rec: Recorder) -> LiveRecorder | None:
    """The recorder, if it records at all: with any other an adapter has nothing to do, and touches nothing."""
    return rec if isinstance(rec, LiveRecorder) and rec.active else None


def span_open(rec: LiveRecorder) -> str | None:
    """The name of the innermost declared span that is open, None for none."""
    if not rec.in_span:
        return None
    phase = rec.phase()[0]
    return None if phase in _OUTSIDE_SPANS else phase


def harmless(what: str) -> Callable[[Callable[P, R]], Callable[P, R | None]]:
    """For callbacks: an error of ours ends here and gives None; `what` says what could not be done."""

    def decorate(call: Callable[P, R]) -> Callable[P, R | None]:
        @functools.wraps(call)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R | None:
            try:
                return call(*args, **kwargs)
            except Exception as error:
                guard.caught(what, error)
                return None

        return guarded

    return decorate


Around = Callable[..., AbstractContextManager[Any] | None]


def surround(call: Callable[..., Any], around: Around) -> Callable[..., Any]:
    """The same call inside the context that `around` gives for its arguments; without one, just the call.

    Its result and its exceptions pass through unchanged.
    """

    @functools.wraps(call)
    def surrounded(*args: Any, **kwargs: Any) -> Any:
        try:
            context = around(*args, **kwargs)
        except Exception as error:
            guard.caught("a call could not be watched", error)
            context = None
        if context is None:
            return call(*args, **kwargs)
        with context:
            return call(*args, **kwargs)

    return traceless(surrounded)


def traceless(wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """A wrapper of ours that leaves no line of its own in the traceback of an exception that passes through it."""

    @functools.wraps(wrapper)
    def passing(*args: Any, **kwargs: Any) -> Any:
        try:
            return wrapper(*args, **kwargs)
        except BaseException as error:
            take_ours_off(error)
            # Raised again as it is, which adds no line: an exception of our own would.
            raise

    return passing


def take_ours_off(error: BaseException) -> None:
    """Leave out the lines of ours that an exception has passed through last."""
    # A function of its own: a traceback kept by a frame that it leads to would keep all their objects alive.
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    error.__traceback__ = trace


class Written:
    """Around the writing of an asynchronous save, on whatever thread: it is durable when that has succeeded."""

    def __init__(self, rec: LiveRecorder, step: int) -> None:
        self._rec = rec
        self._step = step

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._rec.durable(self._step, ok=error is None)


class Wrapped:
    """Methods of single objects that are wrapped for a while, because nothing hooks them."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any, Any]] = []

    def around(self, owner: Any, name: str, context: Around) -> bool:
        """Surround a method of this one object; False when it has none of that name."""
        if owner is None or not callable(getattr(owner, name, None)):
            return False
        self.replace(owner, name, surround(getattr(owner, name), context))
        return True

    def replace(self, owner: Any, name: str, call: Callable[..., Any]) -> None:
        """Put another call in the place of a method of this one object."""
        self._undo.append((owner, name, vars(owner).get(name), call))
        setattr(owner, name, call)

    def restore(self) -> None:
        """Leave the objects as they were; what somebody else has wrapped again since is left alone."""
        while self._undo:
            owner, name, before, wrapper = self._undo.pop()
            if vars(owner).get(name) is not wrapper:
                continue
            if before is None:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


def plain_float(value: object) -> float | None:
    """A figure that is at hand: a number, or a tensor of one element in the host's memory. Others would have to be
    waited for, and are None."""
    if type(value) is float:
        return value
    if isinstance(value, float | int):
        return float(value)
    device = getattr(getattr(value, "device", None), "type", None)
    if device != "cpu" or value.numel() != 1:  # type: ignore[attr-defined]
        return None
    return float(value.detach())  # type: ignore[attr-defined]
