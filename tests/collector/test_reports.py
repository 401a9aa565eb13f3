"""Reports while others wait: kept while nothing is new, and given up at once when the collector ends."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import made_streams
import pytest

from goodput_analytics import UnknownRun
from goodput_collector import reports as reporting
from goodput_collector.chunks import Chunk
from goodput_collector.errors import BusyError
from goodput_collector.reports import Reports
from goodput_collector.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = Store(tmp_path / "c.duckdb", tmp_path / "c.archive")
    found.take([Chunk(stream=name, offset_bytes=0, data=data) for name, data in made_streams.streams().items()])
    yield found
    found.close()


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs that were computed, in order."""
    computed: list[str] = []
    real = reporting.tell

    def tell(con: duckdb.DuckDBPyConnection, run: str, *rest: Any, **more: Any) -> Any:
        computed.append(run)
        return real(con, run, *rest, **more)

    monkeypatch.setattr(reporting, "tell", tell)
    return computed


def test_a_report_is_computed_again_only_when_its_run_has_new_data(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = counted(monkeypatch)
    reports = Reports(store, rest_ratio=0.0)
    before = reports.report("by-hand")
    time.sleep(1.1)
    assert reports.report("by-hand") is before and computed == ["by-hand"]
    store.take([Chunk(stream="other", offset_bytes=0, data=made_streams.steps("o", 3, run="other"))])
    assert reports.report("by-hand") is before
    more = b'{"kind":"progress","run":"by-hand","source":"late","seq":0,"ts_ns":1767225600000000000}\n'
    store.take([Chunk(stream="late", offset_bytes=0, data=more)])
    assert reports.report("by-hand").quality.events == before.quality.events + 1
    assert computed == ["by-hand", "by-hand"]
    with pytest.raises(UnknownRun):
        reports.report("by-hand~2~x")
    reports.let_go()


def test_one_that_takes_long_is_given_up_when_the_collector_ends(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()

    def slow(con: duckdb.DuckDBPyConnection, *_: object, **__: object) -> None:
        begun.set()
        while True:
            con.execute("SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b").fetchall()

    monkeypatch.setattr(reporting, "tell", slow)
    reports = Reports(store)
    ended: list[BaseException] = []

    def ask() -> None:
        try:
            reports.report("by-hand")
        except Exception as error:
            ended.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    assert begun.wait(10)
    at = time.monotonic()
    while thread.is_alive() and time.monotonic() - at < 10:
        reports.stop()
        thread.join(0.05)
    assert not thread.is_alive() and time.monotonic() - at < 3
    assert isinstance(ended[0], duckdb.InterruptException)
    with pytest.raises(BusyError, match="stopping"):
        reports.report("by-hand")
