"""Events into a database: straight into the tables, which is fast, or through the real landing."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from goodput_collector.database import open_database
from goodput_collector.landing import Landing
from goodput_collector.statements import blocks_of

Event = dict[str, Any]

# A made-up run has a few hundred events, and most of the time of a report on it goes into planning: half as long
# without the optimizer. (The scenarios are reported with it, by the command.)
QUICK = ("SET threads = 1", "PRAGMA disable_optimizer")
ARROW = {
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "VARCHAR": pa.string(),
    "BOOLEAN": pa.bool_(),
    "DOUBLE": pa.float64(),
}
FIELDS = {"grp": "group", "of_source": "of"}


@contextmanager
def loaded(events: Iterable[Event]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory that holds the events; each (source, seq) may come once."""
    con = _empty()
    try:
        load(con, events)
        yield con
    finally:
        con.close()


def _empty() -> duckdb.DuckDBPyConnection:
    con = open_database(":memory:")
    for statement in QUICK:
        con.execute(statement)
    return con


def load(con: duckdb.DuckDBPyConnection, events: Iterable[Event]) -> None:
    """Fill the empty landing tables, as the landing would from these events."""
    runs: dict[str, int] = {}
    sources: dict[str, int] = {}
    by_table: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        row = dict(event)
        run = row.get("run")
        row["run_id"] = None if run is None else runs.setdefault(run, len(runs) + 1)
        row["source_id"] = sources.setdefault(row["source"], len(sources) + 1)
        by_table["ev_" + row["kind"]].append(row)
    _fill(con, "runs", [{"run_id": number, "run": name} for name, number in runs.items()])
    _fill(con, "sources", [{"source_id": number, "source": name} for name, number in sources.items()])
    _link(by_table.get("ev_step", []))
    for table, rows in by_table.items():
        _fill(con, table, rows)
    con.execute(f"INSERT INTO step_blocks {blocks_of('ev_step')}")


def _link(steps: Sequence[Event]) -> None:
    """Put beside each step the one before it in its source."""
    before: dict[tuple[int, int], Event] = {}
    for step in sorted(steps, key=lambda row: row["seq"]):
        own = step["run_id"], step["source_id"]
        if own in before:
            last = before[own]
            step["before_step"], step["before_end_ns"] = last["step"], max(last["start_ns"], last["end_ns"])
        before[own] = step


@cache
def _columns() -> dict[str, list[tuple[str, str]]]:
    with open_database(":memory:") as con:
        found: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for table, column, kind in con.execute(
            "SELECT table_name, column_name, data_type FROM information_schema.columns ORDER BY ordinal_position"
        ).fetchall():
            found[table].append((column, kind))
    return found


def _fill(con: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Event]) -> None:
    if not rows:
        return
    data = pa.table(
        {
            column: pa.array([_value(row.get(FIELDS.get(column, column)), kind) for row in rows], ARROW[kind])
            for column, kind in _columns()[table]
        }
    )
    con.register("handed_in", data)
    con.execute(f"INSERT INTO {table} SELECT * FROM handed_in")
    con.unregister("handed_in")


def _value(value: Any, kind: str) -> Any:
    return json.dumps(value) if kind == "VARCHAR" and value is not None and not isinstance(value, str) else value


@contextmanager
def landed(*deliveries: Sequence[Sequence[str]]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory that took the deliveries, one after another: lists of files, which are lists of lines."""
    con = _empty()
    try:
        with tempfile.TemporaryDirectory() as folder:
            for number, files in enumerate(deliveries):
                paths = [Path(folder, f"{number}-{index}.jsonl") for index in range(len(files))]
                for path, lines in zip(paths, files, strict=True):
                    path.write_text("".join(f"{line}\n" for line in lines))
                Landing(con).take(paths)
        yield con
    finally:
        con.close()
