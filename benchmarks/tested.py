"""The unit tests of the analytics as cases: each called as pytest would call it, on databases that are lent to it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import pytest
from loading import loaded

Event = dict[str, Any]
Lend = Callable[[Iterable[Event]], AbstractContextManager[duckdb.DuckDBPyConnection]]


class Databases:
    """Databases by what they hold, kept open: a report with a change then builds on what stands in them."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._kept: dict[str, duckdb.DuckDBPyConnection] = {}

    def lend(self, events: Iterable[Event]) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """As `loading.loaded`, which builds a database and closes it."""
        told = list(events)
        key = json.dumps(told, sort_keys=True)
        if key not in self._kept:
            self._kept[key] = self._open.enter_context(loaded(told))
        return nullcontext(self._kept[key])

    def interrupt(self) -> None:
        """Stop whatever statement runs."""
        for con in self._kept.values():
            con.interrupt()

    def __len__(self) -> int:
        return len(self._kept)

    def __enter__(self) -> Databases:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


@dataclass(frozen=True, kw_only=True)
class UnitTest:
    """A test function with its parameters."""

    name: str
    function: Callable[..., None]
    parameters: Mapping[str, Any]

    def passes(self, lend: Lend) -> bool:
        try:
            with _lending(lend):
                self.function(**self.parameters)
        except (Exception, pytest.fail.Exception):  # a test that fails, in whatever way
            return False
        return True


@contextmanager
def _lending(lend: Lend) -> Iterator[None]:
    with ExitStack() as stack:
        for module in list(sys.modules.values()):
            if getattr(module, "loaded", None) is loaded and module.__name__ not in (__name__, "loading"):
                stack.enter_context(patch.object(module, "loaded", lend))
        yield


class _Collected:
    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = session.items


def unit_tests(files: Iterable[Path]) -> list[UnitTest]:
    """The test functions of these files that need no fixture; those that draw examples are left out."""
    collected = _Collected()
    quiet = ("--collect-only", "-p", "no:terminal", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=")
    code = pytest.main([*quiet, *map(str, files)], plugins=[collected])
    if code != pytest.ExitCode.OK:
        raise SystemExit(f"pytest could not collect the tests ({code!r}): run it on tests/analytics to see why")
    found = []
    for item in collected.items:
        if not isinstance(item, pytest.Function) or hasattr(item.obj, "hypothesis"):
            continue
        callspec = getattr(item, "callspec", None)
        parameters = {} if callspec is None else dict(callspec.params)
        if set(item.fixturenames) <= set(parameters):
            found.append(UnitTest(name=f"{item.path.stem}::{item.name}", function=item.obj, parameters=parameters))
    return found
