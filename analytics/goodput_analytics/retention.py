"""Which steps' rows of ranks can go, and what must be kept in their place, so that every figure stays what it is.

A step is reduced over its ranks first, and all that follows looks at the reduced step. Of a step that is old enough
that reduction is kept for ever, and the rows that it was made of can go, but for a few that are asked for one by one.
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb

from goodput_analytics.early import Early
from goodput_analytics.ledger import build, launch_name
from goodput_analytics.relations import run_sql

RELATIONS = ("closing_steps", "closing_groups", "closing_clocks", "closing_rows")


def reduced(con: duckdb.DuckDBPyConnection, run: str, before_ns: int) -> Iterator[bool]:
    """Reduces the steps that can be closed, of one of a run's launches after another; whether a launch has any.

    Args:
        con: a connection; where a launch has any, the tables `gp_closing`, `gp_closing_steps`, `gp_closing_groups`,
            `gp_closing_clocks` and `gp_closing_rows` (the rows that are to stay) are left in it until the next is
            asked for.
        run: its name.
        before_ns: what was told before may be closed, in nanoseconds since the epoch.

    The ledger of each launch is built once. Raises UnknownRun or LedgerError.
    """
    number = count = 1
    while number <= count:
        count = build(con, launch_name(run, number), whole=True, early=Early.NONE).launches
        run_sql(con, "closing", {"before_ns": before_ns})
        found = bool(con.execute("SELECT 1 FROM gp_closing LIMIT 1").fetchall())
        if found:
            for name in RELATIONS:
                run_sql(con, name)
        yield found
        number += 1
