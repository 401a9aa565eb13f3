"""Steps of which nothing changes any more are reduced once: a refresh then costs in proportion to what is new.

A step is reduced over its ranks first, and all that follows looks at the reduced step. That reduction is kept as soon
as its block of steps is complete, beside the rows that it was made of, with a count of all that went into it. As long
as the count holds it is read in their place; when something comes late after all, the rows are read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import duckdb

from goodput_analytics.relations import run_sql

WORTH_ROWS = 10_000
"""Rows of ranks that are not kept reduced: from so many on it is looked whether some could be."""
RELATIONS = ("closing_steps", "closing_groups", "closing_clocks", "closing_marks")
MEASURES = ("closing_measured", "closing_measures", "closing_seen")


class Early(Enum):
    """What is done with steps that are kept reduced although their rows of ranks are there.

    NONE: all rows are read, as who asks for single ranks must have it (`gp_measures`). READ: what is kept is read in
    their place. FIND: also, what could be kept from now on is left in the connection, in the tables `gp_closing` (no
    row: no steps), `gp_closing_measured` (no row: nothing of ranks that are named as slow) and `gp_closing_...`.
    """

    NONE = "none"
    READ = "read"
    FIND = "find"


def any_early(con: duckdb.DuckDBPyConnection, values: Mapping[str, object]) -> bool:
    """Whether anything is kept of the run."""
    found = con.execute("SELECT 1 FROM closed_early WHERE run_id = $run_id LIMIT 1", {"run_id": values["run_id"]})
    return bool(found.fetchall())


def all_read(con: duckdb.DuckDBPyConnection) -> bool:
    """Whether the relations that stand in the connection were made from all rows of ranks that there are."""
    return not con.execute("SELECT 1 FROM gp_segments WHERE closed_below > gone_below LIMIT 1").fetchall()


def find_early(con: duckdb.DuckDBPyConnection, values: Mapping[str, object]) -> None:
    """What of the run's steps could be kept from now on. Its relations up to the fates of its lives stand in `con`."""
    told = con.execute(
        "SELECT sum(b.steps) FROM gp_step_blocks b JOIN gp_segments g ON g.source_id = b.source_id AND g.part = b.part "
        "AND g.whole AND b.block * 1000 >= g.closed_below"
    ).fetchall()[0][0]
    if (told or 0) < WORTH_ROWS:
        con.execute(
            "CREATE OR REPLACE TEMP TABLE gp_closing (attempt BIGINT, anchor INTEGER, from_step BIGINT, below BIGINT)"
        )
        return
    run_sql(con, "early_closing", values)
    if con.execute("SELECT 1 FROM gp_closing LIMIT 1").fetchall():
        for name in RELATIONS:
            run_sql(con, name, values)


def find_measures(con: duckdb.DuckDBPyConnection, values: Mapping[str, object]) -> None:
    """What of the ranks that are named as slow could be kept beside that. The run's whole ledger stands in `con`."""
    for name in MEASURES:
        run_sql(con, name, values)
