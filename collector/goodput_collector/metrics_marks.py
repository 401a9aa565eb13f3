"""Marks that counters never fall below: what was told of a run is written down before it is told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb

from goodput_collector.contract import KINDS
from goodput_collector.database import one_row, sql_text
from goodput_collector.lander import Counts
from goodput_collector.metrics import Counters
from goodput_collector.store import Store


class Marks:
    """The highest values of every run's counters, in memory and in the database of a collector."""

    def __init__(self, store: Store) -> None:
        """Reads what was told before. Raises duckdb.Error."""
        self._store = store
        cursor = store.cursor()
        try:
            cursor.execute(sql_text("metric_marks"))
            self._known = read_marks(cursor)
        finally:
            cursor.close()

    def raised(self, runs: Mapping[str, Counters]) -> dict[str, Counters]:
        """The counters to tell: none lower than ever before, and all of them written down.

        Raises duckdb.Error, and then nothing new may be told; `last` says what was told before.
        """
        told = {run: highest(self._known.get(run), counters) for run, counters in runs.items()}
        grown = {run: marks for run, marks in told.items() if marks != self._known.get(run)}
        if grown:
            with self._store.writing:
                cursor = self._store.cursor()
                try:
                    cursor.execute(
                        "INSERT INTO metric_marks SELECT unnest($runs::VARCHAR[]), unnest($marks::VARCHAR[]) "
                        "ON CONFLICT (run) DO UPDATE SET marks = excluded.marks",
                        {"runs": list(grown), "marks": [json.dumps(marks) for marks in grown.values()]},
                    )
                finally:
                    cursor.close()
            self._known.update(grown)
        return told

    def last(self, run: str) -> Counters | None:
        """What was told of a run last; None where nothing was."""
        return self._known.get(run)


def read_marks(con: duckdb.DuckDBPyConnection) -> dict[str, Counters]:
    """The marks in a database; none where no collector has told anything from it yet."""
    if one_row(con, "SELECT 1 FROM duckdb_tables() WHERE table_name = 'metric_marks' AND NOT temporary") is None:
        return {}
    return {run: json.loads(marks) for run, marks in con.execute("SELECT run, marks FROM metric_marks").fetchall()}


def highest(before: Counters | None, now: Counters) -> Counters:
    """Each counter at the higher of its values."""
    known = before or {}
    return {name: max(known.get(name, value), value) for name, value in now.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """What was taken in all: events that are kept, those that came again, and lines that could not be taken."""

    events: int
    duplicates: int
    conflicts: int
    rejected: Mapping[str, int]

    def __sub__(self, other: Landed) -> Landed:
        return self._with(other, -1)

    def __add__(self, other: Landed) -> Landed:
        return self._with(other, 1)

    def _with(self, other: Landed, sign: int) -> Landed:
        reasons = sorted({*self.rejected, *other.rejected})
        return Landed(
            events=self.events + sign * other.events,
            duplicates=self.duplicates + sign * other.duplicates,
            conflicts=self.conflicts + sign * other.conflicts,
            rejected={why: self.rejected.get(why, 0) + sign * other.rejected.get(why, 0) for why in reasons},
        )


def landed(con: duckdb.DuckDBPyConnection) -> Landed:
    """What a database has taken, from its own tables."""
    # Steps are counted by their blocks: of closed ones the rows have gone.
    counts = [f"SELECT count(*) AS n FROM {kind.table}" for kind in KINDS.values() if kind.name != "step"]
    union = " UNION ALL ".join(["SELECT sum(steps) AS n FROM step_blocks", *counts])
    events = one_row(con, f"SELECT sum(n)::BIGINT FROM ({union})") or (0,)
    again = one_row(con, "SELECT sum(duplicates)::BIGINT, sum(conflicts)::BIGINT FROM delivery") or (0, 0)
    rejected = con.execute(
        "SELECT reason, sum(lines)::BIGINT FROM (SELECT reason, 1 AS lines FROM rejected "
        "UNION ALL SELECT reason, lines FROM rejected_more) GROUP BY reason"
    ).fetchall()
    return Landed(
        events=events[0] or 0, duplicates=again[0] or 0, conflicts=again[1] or 0, rejected=dict(rejected)
    )  # fmt: skip


def since_opened(counts: Counts) -> Landed:
    """What was taken since a store was opened; what came again is no further event."""
    again = counts.duplicates + counts.conflicts
    return Landed(
        events=counts.events - again,
        duplicates=counts.duplicates,
        conflicts=counts.conflicts,
        rejected=dict(counts.rejected),
    )


def size_bytes(db: Path) -> int | None:
    """The size of a database file; None where it cannot be told."""
    try:
        return db.stat().st_size
    except OSError:
        return None
