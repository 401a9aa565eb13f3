"""Events one at a time in any order, a report after each, restarts between: the last report is that of them all."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from landing_cases import line
from made_events import by_hand, write

import goodput_analytics
from goodput_collector.chunks import Chunk
from goodput_collector.database import open_database
from goodput_collector.landing import ingest_files
from goodput_collector.rebuild import rebuild
from goodput_collector.reports import Reports
from goodput_collector.store import Store

EVENTS = by_hand()
NOW_NS = max(event["ts_ns"] for event in EVENTS)


def told(report: goodput_analytics.Report) -> str:
    return json.dumps(report.as_json(), sort_keys=True)


def batch_report(folder: Path, events: list[dict[str, Any]]) -> str:
    ingest_files(folder / "batch.duckdb", [write(folder / "all.jsonl", events)])
    con = open_database(folder / "batch.duckdb", read_only=True)
    try:
        return told(goodput_analytics.report(con, "by-hand", now_ns=NOW_NS))
    finally:
        con.close()


def one_by_one(data: st.DataObject, *, most: int, ask_always: bool) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(EVENTS) - 1), unique=True, min_size=most // 2, max_size=most))
    events = [EVENTS[index] for index in chosen]
    again = data.draw(st.lists(st.sampled_from(events), max_size=4))
    # The starts give the run its ranks; without them there would be little to report.
    starts = [event for event in EVENTS if event["kind"] == "start" and event not in events]
    order = data.draw(st.permutations([*events, *starts]))
    order = [*order, *again]
    restarts = data.draw(st.sets(st.integers(0, len(order) - 1), max_size=2))
    asked = data.draw(st.sets(st.integers(0, len(order) - 1), max_size=5))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = Store(folder / "c.duckdb", folder / "c.archive")
        reports = Reports(store, clock_ns=lambda: NOW_NS, rest_ratio=0.0)
        stands: dict[str, int] = {}
        for index, event in enumerate(order):
            if index in restarts:
                reports.let_go()
                store.close()
                store = Store(folder / "c.duckdb", folder / "c.archive")
                reports = Reports(store, clock_ns=lambda: NOW_NS, rest_ratio=0.0)
            stream = f"{event['source']}.{index % 2}"
            (answer,) = store.take([Chunk(stream=stream, offset_bytes=stands.get(stream, 0), data=line(event) + b"\n")])
            assert answer.fits
            stands[stream] = answer.offset_bytes
            if ask_always or index in asked:
                assert reports.report("by-hand").quality.events <= index + 1
        last = told(reports.report("by-hand"))
        reports.let_go()
        store.close()
        assert last == batch_report(folder, order)
        rebuild(folder / "c.archive", folder / "again.duckdb")
        con = open_database(folder / "again.duckdb", read_only=True)
        assert told(goodput_analytics.report(con, "by-hand", now_ns=NOW_NS)) == last
        con.close()


@settings(max_examples=1, deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_the_last_report_is_that_of_all_events(data: st.DataObject) -> None:
    one_by_one(data, most=16, ask_always=False)


@pytest.mark.soak
@settings(max_examples=20, deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_every_report_on_the_way_and_the_last_one(data: st.DataObject) -> None:
    """About ten minutes."""
    one_by_one(data, most=60, ask_always=True)
