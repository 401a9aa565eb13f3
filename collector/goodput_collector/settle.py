"""Each event once: finds the copies of an event in a batch and in the database, and leaves one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from goodput_collector import statements
from goodput_collector.batch import Batch
from goodput_collector.contract import KINDS, Kind
from goodput_collector.database import one_row, sql_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """How many events of each slice had come before: the same, or with another content."""

    duplicates: list[int]
    conflicts: list[int]

    @classmethod
    def none(cls, slices: int) -> Repeats:
        """Nothing had come before."""
        return cls(duplicates=[0] * slices, conflicts=[0] * slices)


def settle(con: duckdb.DuckDBPyConnection, batch: Batch, kinds: Sequence[Kind]) -> Repeats:
    """Takes from `staged_KIND` all that came before, and from the landed tables what gives way to another content
    (`unlinked` then has the sources of steps).

    Mostly nothing came before: then the sequence numbers tell it at the price of one count.
    """
    repeats = Repeats.none(len(batch.starts))
    con.execute("CREATE OR REPLACE TEMP TABLE unlinked (source_id INTEGER)")
    if not kinds:
        return repeats
    con.execute(sql_text("ranges"))
    row = one_row(con, "SELECT count(*) FROM overlapping")
    overlap = row is not None and row[0] > 0
    row = one_row(
        con, "SELECT (SELECT count(*) FROM keys) > (SELECT count(*) FROM (SELECT DISTINCT source_id, seq FROM keys))"
    )
    repeated = row is not None and row[0]
    if overlap or repeated:
        _settle(con, batch, kinds, repeats)
    con.execute(sql_text("widen_ranges"))
    return repeats


def _settle(con: duckdb.DuckDBPyConnection, batch: Batch, kinds: Sequence[Kind], repeats: Repeats) -> None:
    con.execute(sql_text("copies"))
    for (name,) in con.execute(statements.landed_kinds()).fetchall():
        con.execute(statements.copies(KINDS[name], KINDS[name].table, "overlapping_keys", "NULL"))
    con.execute(sql_text("repeated_keys"))
    for kind in kinds:
        con.execute(statements.copies(kind, f"staged_{kind.name}", "repeated_keys", "e.pos"))
    con.execute(sql_text("settle"))
    con.execute(sql_text("repeats"))
    for name, counts in (("same", repeats.duplicates), ("other", repeats.conflicts)):
        for index, number in con.execute(batch.by_slice(f"SELECT pos FROM repeats WHERE what = '{name}'")).fetchall():
            counts[index] = number
    for kind in kinds:
        con.execute(f"DELETE FROM staged_{kind.name} WHERE pos IN (SELECT pos FROM repeats WHERE NOT stays)")
    con.execute(
        "INSERT INTO unlinked SELECT DISTINCT source_id FROM contents WHERE landed AND NOT wins AND kind = 'step'"
    )
    # A count does not tell that one content gave way to another.
    con.execute(
        "DELETE FROM closed_early WHERE source_id IN (SELECT source_id FROM contents WHERE landed AND NOT wins)"
    )
    for (name,) in con.execute("SELECT DISTINCT kind FROM contents WHERE landed AND NOT wins").fetchall():
        con.execute(
            f"DELETE FROM {KINDS[name].table} e USING contents c WHERE c.kind = '{name}' AND c.landed AND NOT c.wins "
            "AND c.source_id = e.source_id AND c.seq = e.seq"
        )
