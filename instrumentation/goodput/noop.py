"""The recorder that does nothing: same methods, no state, no thread, no file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


class _Nothing:
    """A context manager, and a step handle, without effect."""

    __slots__ = ()

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def note(self, *, loss: float | None = None, lr: float | None = None, applied: bool | None = None) -> None:
        pass


class _NoSpan:
    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


_NOTHING = _Nothing()
_NO_SPAN = _NoSpan()


class NoopRecorder:
    """Given by `start` when recording is disabled, no run is named, or it could not be begun."""

    __slots__ = ()
    run = ""
    source = ""
    active = False

    def resumed(self, step: int | None) -> None:
        pass

    def data(self, iterable: Iterable[T]) -> Iterable[T]:
        return iterable

    def step(self, step: int, count: int = 1, applied: bool = True) -> _Nothing:
        return _NOTHING

    def begin_step(self, step: int, count: int = 1) -> None:
        pass

    def end_step(self, *, applied: bool = True, loss: float | None = None, lr: float | None = None) -> None:
        pass

    def own_work_done(self) -> None:
        pass

    def in_group(self, group: str | int) -> None:
        pass

    def checkpoint(self, step: int, async_: bool = False) -> _NoSpan:
        return _NO_SPAN

    def evaluation(self, step: int | None = None) -> _NoSpan:
        return _NO_SPAN

    def span(self, name: str, category: str | None = None, step: int | None = None) -> _NoSpan:
        return _NO_SPAN

    def begin_span(self, name: str, category: str | None = None, step: int | None = None, async_: bool = False) -> int:
        return -1

    def end_span(self, span: int, ok: bool = True) -> None:
        pass

    def durable(self, step: int, ok: bool = True) -> None:
        pass

    def progress(self) -> None:
        pass

    def preempted(self) -> None:
        pass

    def first_time(self, step: int) -> bool:
        return True

    def checkpoint_requested(self) -> bool:
        return False

    def finish(self) -> None:
        pass
