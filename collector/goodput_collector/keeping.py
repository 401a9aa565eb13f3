"""Rows of ranks that are old enough give way to what is kept of their steps; what is told too late is counted."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from goodput_analytics import AnalyticsError
from goodput_analytics.merged import release
from goodput_analytics.retention import reduced
from goodput_collector import shown
from goodput_collector.database import one_row, sql_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What is to be done for a run, by its recorded name: what it told before `before_ns` is closed where it can be."""

    run: str
    before_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """What came of it: runs of which something was closed, and rows of ranks that went."""

    runs: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A run, by its recorded name, that has blocks of steps that are old and not closed; `parts`: the keys of the
    recorded runs that have them, `blocks`: how many there are."""

    run: str
    parts: tuple[int, ...]
    blocks: int


def due(con: duckdb.DuckDBPyConnection, before_ns: int) -> list[Due]:
    """The runs with blocks of steps that were told before that moment and are not closed."""
    found = con.execute(
        "SELECT r.run, list(o.run_id), sum(n)::BIGINT FROM ("
        "SELECT b.run_id, count(*) AS n FROM step_blocks b LEFT JOIN closed_steps c ON c.source_id = b.source_id "
        "WHERE b.last_told_ns < ? AND b.block * 1000 >= coalesce(c.below, 0) GROUP BY b.run_id"
        ") o JOIN shown_runs s ON s.run_id = o.run_id JOIN runs r ON r.run_id = s.root_id WHERE NOT s.hidden "
        "GROUP BY r.run ORDER BY r.run",
        [before_ns],
    ).fetchall()
    return [Due(run=run, parts=tuple(parts), blocks=blocks) for run, parts, blocks in found]


def apply(con: duckdb.DuckDBPyConnection, one: Retention) -> int | None:
    """Closes what can be closed of a run, within the caller's transaction; how many rows of ranks went.

    From then on events that the run told before that moment come too late. None: there is nothing that can be closed,
    and nothing was done.
    """
    name = _shown_name(con, one.run)
    if name is None or not _reduce(con, name, one.before_ns):
        return None
    before = row_count(con)
    con.execute(
        "CREATE OR REPLACE TEMP TABLE closing_sources AS "
        "SELECT min(b.run_id) AS run_id, m.source_id, m.from_step, m.below FROM closing_members m "
        "JOIN step_blocks b ON b.source_id = m.source_id GROUP BY ALL"
    )
    con.execute(sql_text("close_steps"))
    parts = shown.parts_of(con, name)
    assert parts is not None
    con.execute(
        "DELETE FROM raw_horizons WHERE run_id IN (SELECT unnest(?)) AND before_ns < ?", [list(parts), one.before_ns]
    )
    con.execute(
        "INSERT INTO raw_horizons SELECT run_id, ? FROM (SELECT unnest(?::INTEGER[]) AS run_id) "
        "WHERE run_id NOT IN (SELECT run_id FROM raw_horizons)",
        [one.before_ns, list(parts)],
    )
    return before - row_count(con)


def _reduce(con: duckdb.DuckDBPyConnection, name: str, before_ns: int) -> bool:
    """Puts what can be closed of all launches together, in `closing_members` and the relations that `close_steps.sql`
    reads; False: nothing can."""
    tables = {f"closing_{what}": f"gp_closing_{what}" for what in ("steps", "groups", "clocks", "rows")}
    tables["closing_members"] = (
        "(SELECT DISTINCT m.source_id, c.from_step, c.below "
        "FROM gp_members m JOIN gp_closing c ON c.attempt = m.attempt)"
    )
    some = False
    try:
        for fit in reduced(con, name, before_ns):
            if not fit:
                continue
            for table, query in tables.items():
                into = f"INSERT INTO {table}" if some else f"CREATE OR REPLACE TEMP TABLE {table} AS"
                con.execute(f"{into} FROM {query}")
            some = True
    except AnalyticsError:
        return False  # a run whose ledger cannot be made keeps all its rows
    finally:
        release(con)
    return some


def row_count(con: duckdb.DuckDBPyConnection) -> int:
    """Rows of ranks that there are."""
    row = one_row(con, "SELECT count(*) FROM ev_step")
    return 0 if row is None else int(row[0])


def _shown_name(con: duckdb.DuckDBPyConnection, recorded: str) -> str | None:
    row = one_row(
        con, "SELECT s.run FROM shown_runs s JOIN runs r USING (run_id) WHERE r.run = ? AND NOT s.hidden", [recorded]
    )
    return None if row is None else str(row[0])
