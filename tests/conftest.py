"""What holds for all tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest


@pytest.fixture(autouse=True, scope="session")
def databases_of_one_thread() -> Iterator[None]:
    """Databases that a test opens itself run on one thread: the tests keep the cores busy as it is, and for small runs
    a second thread costs a fifth more than it saves. What is started as a program has its threads as ever."""
    real = duckdb.connect

    def connect(*given: Any, config: dict[str, Any] | None = None, **named: Any) -> duckdb.DuckDBPyConnection:
        return real(*given, config={"threads": 1, **(config or {})}, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duckdb, "connect", connect)
        yield
