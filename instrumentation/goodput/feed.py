"""Input of a loop, with the time that the loop waits for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from goodput.steps import Steps

T = TypeVar("T")


class Feed(Generic[T]):
    """An iterable whose `next` is timed. Attributes that it has not are its iterable's."""

    def __init__(self, iterable: Iterable[T], steps: Steps) -> None:
        self._iterable = iterable
        self._steps = steps
        self._iterator: Iterator[T] | None = None

    def __iter__(self) -> Iterator[T]:
        steps = self._steps
        # The first batch often waits here already, while a loader starts its workers.
        since = steps.fetch()
        try:
            iterator = iter(self._iterable)
        finally:
            steps.fetched(since)
        while True:
            since = steps.fetch()
            try:
                item = next(iterator)
            except StopIteration:
                return
            finally:
                steps.fetched(since)
            yield item

    def __next__(self) -> T:
        if self._iterator is None:
            self._iterator = iter(self)
        return next(self._iterator)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            # Copying and unpickling ask for these before there is an iterable.
            raise AttributeError(name)
        return getattr(self._iterable, name)


class SizedFeed(Feed[T]):
    """A feed of something that has a length."""

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]


def feed(iterable: Iterable[T], steps: Steps) -> Feed[T]:
    """Wrap an iterable, with a length if it has one."""
    return (SizedFeed if hasattr(type(iterable), "__len__") else Feed)(iterable, steps)
