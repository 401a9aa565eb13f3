"""Spans: declared work that blocks the loop."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from goodput.request import CheckpointRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSpan:
    """A span that has begun. `since_ns`: when; `step`: the step that it belongs to; `category`: of its time;
    `outermost`: in no other span; `asked`: the request for a save that was there when it began."""

    id: int
    name: str
    step: int | None
    since_ns: int
    category: str = "unattributed"
    outermost: bool = True
    asked: CheckpointRequest | None = None


class SpanKeeper(Protocol):
    """Who writes a span's events."""

    def begin_span(
        self, name: str, category: str | None = None, step: int | None = None, async_: bool = False
    ) -> int: ...
    def end_span(self, span: int, ok: bool = True) -> None: ...
    def left_by(self, error: BaseException) -> None: ...


class SpanContext:
    """`with rec.span(...)`: its end is told whatever happens, and an exception passes through."""

    __slots__ = ("_async", "_category", "_id", "_keeper", "_name", "_step")

    def __init__(self, keeper: SpanKeeper, name: str, category: str | None, step: int | None, async_: bool) -> None:
        self._keeper = keeper
        self._name = name
        self._category = category
        self._step = step
        self._async = async_
        self._id = -1

    def __enter__(self) -> None:
        self._id = self._keeper.begin_span(self._name, self._category, self._step, self._async)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._keeper.end_span(self._id, error is None)
        if error is not None:
            self._keeper.left_by(error)
