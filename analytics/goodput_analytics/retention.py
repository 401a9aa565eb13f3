"""Which steps' rows of ranks can go, and what must be kept in their place, so that every figure stays what it is.

A step is reduced over its ranks first, and all that follows looks at the reduced step. Of a step that is old enough
that reduction is kept for ever, and the rows that it was made of can go, but for a few that are asked for one by one.
"""

from __future__ import annotations

import duckdb

from goodput_analytics.early import Early
from goodput_analytics.ledger import build, launch_name
from goodput_analytics.relations import run_sql

RELATIONS = ("closing_steps", "closing_groups", "closing_clocks", "closing_rows")


def launches(con: duckdb.DuckDBPyConnection, run: str, before_ns: int) -> list[tuple[str, bool]]:
    """The names of a run's launches, and whether each has steps that can be closed.

    Raises UnknownRun or LedgerError.
    """
    found: list[tuple[str, bool]] = []
    number = count = 1
    while number <= count:
        name = launch_name(run, number)
        count = build(con, name, whole=True, early=Early.NONE).launches
        run_sql(con, "closing", {"before_ns": before_ns})
        found.append((name, bool(con.execute("SELECT 1 FROM gp_closing LIMIT 1").fetchall())))
        number += 1
    return found


def close(con: duckdb.DuckDBPyConnection, run: str, before_ns: int) -> bool:
    """Reduces the steps of one launch that can be closed; False where there are none.

    Args:
        con: a connection; the tables `gp_closing`, `gp_closing_steps`, `gp_closing_groups`, `gp_closing_clocks` and
            `gp_closing_rows` (the rows that are to stay) are left in it.
        run: the launch's name.
        before_ns: what was told before may be closed, in nanoseconds since the epoch.

    Raises UnknownRun or LedgerError.
    """
    build(con, run, whole=True, early=Early.NONE)
    run_sql(con, "closing", {"before_ns": before_ns})
    if not con.execute("SELECT 1 FROM gp_closing LIMIT 1").fetchall():
        return False
    for name in RELATIONS:
        run_sql(con, name)
    return True
