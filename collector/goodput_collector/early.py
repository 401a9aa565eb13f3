"""Complete blocks of steps are kept reduced while a run goes on, so that a report reads only what is new of ranks.

Who makes a report finds them (`goodput_analytics.early`), the thread that writes keeps them. It may come late or not at
all: what is kept says by itself whether it still holds.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import pyarrow as pa

from goodput_collector.database import one_row, sql_text, transaction

_STEPS = ("closing", "closing_steps", "closing_groups", "closing_clocks", "closing_marks")
_MEASURES = ("closing_measured", "closing_measures", "closing_seen")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What of a run can be kept: the relations `gp_closing...`, by the names that `keep_early.sql` (where there are
    steps to be kept) and `keep_measures.sql` read."""

    run_id: int
    tables: dict[str, pa.Table]


def found(con: duckdb.DuckDBPyConnection) -> Found | None:
    """What the report that stands in the connection found; None where it is nothing.

    Of runs that were merged nothing is kept: their rows stand under several keys.
    """
    any_steps = one_row(con, "SELECT 1 FROM gp_closing LIMIT 1") is not None
    if not any_steps and one_row(con, "SELECT 1 FROM gp_closing_measured LIMIT 1") is None:
        return None
    row = one_row(con, "SELECT getvariable('gp_run_id'), getvariable('gp_gathered') IS NOT NULL")
    if row is None or row[1]:
        return None
    if not any_steps:
        con.execute(
            "CREATE OR REPLACE TEMP TABLE gp_closing_marks AS SELECT * EXCLUDE (run_id) FROM closed_early LIMIT 0"
        )
    tables: dict[str, pa.Table] = {}
    for name in (*(_STEPS if any_steps else ("closing_marks",)), *_MEASURES):
        tables[_kept_as(name)] = con.sql(f"FROM gp_{name}").to_arrow_table()
        con.execute(f"TRUNCATE gp_{name}")
    return Found(run_id=int(row[0]), tables=tables)


def _kept_as(name: str) -> str:
    return name.replace("closing_", "early_") if name != "closing" else "early_closing"


def keep(con: duckdb.DuckDBPyConnection, one: Found) -> None:
    """Has it in the database. Raises duckdb.Error, and nothing is kept then."""
    try:
        for name, table in one.tables.items():
            con.register(name, table)
        con.execute("SET VARIABLE early_run_id = ?", [one.run_id])
        with transaction(con):
            if _kept_as("closing") in one.tables:
                con.execute(sql_text("keep_early"))
            con.execute(sql_text("keep_measures"))
    finally:
        for name in one.tables:
            con.unregister(name)
