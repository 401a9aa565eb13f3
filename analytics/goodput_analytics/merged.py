"""Runs that people merged, read as one: the landed tables as if all of it had been told under one name.

The landed rows stay as they were told. While a merged run is asked for, temporary views of this connection stand before
the tables, and everything reads those.
"""

from __future__ import annotations

import duckdb

_SUMMED = """SELECT {run_id}::INTEGER AS run_id, source_id, block, sum(steps)::BIGINT AS steps,
min(first_seq) AS first_seq, max(last_seq) AS last_seq, max(top_step) AS top_step,
min(first_start_ns) AS first_start_ns, min(first_end_ns) AS first_end_ns,
max(last_end_ns) AS last_end_ns, max(last_told_ns) AS last_told_ns,
sum(backwards)::BIGINT AS backwards, bool_or(back) AS back, bool_or(again) AS again
FROM {table} WHERE run_id IN ({parts}) GROUP BY source_id, block"""
_RENAMED = """SELECT * REPLACE (CASE WHEN run_id IS NOT NULL THEN {run_id} END::INTEGER AS run_id)
FROM {table} WHERE run_id IN ({parts}) OR run_id IS NULL"""


def gather(con: duckdb.DuckDBPyConnection, run_id: int) -> None:
    """Has the landed tables show what was told of a run and of those merged into it under its key.

    Keys and names of tables stand in the text of the views, because a view takes no parameters; they are numbers and
    names out of the database's own catalogue.
    """
    found = con.execute(
        "SELECT run_id, getvariable('gp_gathered') IS NOT NULL FROM shown_runs WHERE root_id = $run_id",
        {"run_id": run_id},
    ).fetchall()
    if any(gathered for _, gathered in found):
        release(con)
    if len(found) < 2:
        return
    parts = ", ".join(str(int(part)) for part, _ in found)
    tables = con.execute(
        "SELECT c.database_name, c.table_name FROM duckdb_columns() c JOIN duckdb_tables() t "
        "ON t.database_oid = c.database_oid AND t.table_oid = c.table_oid "
        "WHERE c.column_name = 'run_id' AND NOT t.temporary AND c.database_name = current_database() "
        "AND c.table_name NOT IN ('runs', 'shown')"
    ).fetchall()
    con.execute("SET VARIABLE gp_gathered = $names", {"names": [table for _, table in tables]})
    for database, table in tables:
        place = f'"{database.replace(chr(34), chr(34) * 2)}".main."{table}"'
        text = _SUMMED if table == "step_blocks" else _RENAMED
        body = text.format(run_id=int(run_id), table=place, parts=parts)
        con.execute(f'CREATE OR REPLACE TEMP VIEW "{table}" AS {body}')


def release(con: duckdb.DuckDBPyConnection) -> None:
    """Has the landed tables of this connection show again what they hold."""
    (gathered,) = con.execute("SELECT getvariable('gp_gathered')").fetchall()[0]
    for table in gathered or []:
        con.execute(f'DROP VIEW IF EXISTS temp.main."{table}"')
    con.execute("RESET VARIABLE gp_gathered")
