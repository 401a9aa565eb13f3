"""Archived records landed in a database, each group in one transaction with its place in the archive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field

import duckdb

from goodput_collector.archive import Position, Record
from goodput_collector.contract import Reason
from goodput_collector.control import CONTROL, carry_out
from goodput_collector.control import record as control_record
from goodput_collector.database import one_row, sql_text
from goodput_collector.errors import ArchiveError
from goodput_collector.intake import Intake, Part
from goodput_collector.keeping import Retention, apply
from goodput_collector.redaction import USUAL, Redaction
from goodput_collector.shown import last_told
from goodput_collector.stage import Stage
from goodput_collector.streams import Rejected, Slice

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_REPLAY_BYTES = 32 * 2**20

Land = Callable[[Sequence[Record], Callable[[], Position]], None]
"""Lands records in one transaction, with the position of the archive after them."""


def part_of(record: Record) -> Part:
    """The record as the landing takes it."""
    name, base, end, data, left_out = record
    skipped: tuple[Rejected, ...] = ()
    if left_out:
        skipped = (Rejected(offset_bytes=base, reason=Reason.TOO_LONG, head=data),)
        data = b""
    elif base == 0 and data.startswith(_BYTE_ORDER_MARK):
        base = len(_BYTE_ORDER_MARK)
        data = data[base:]
    return Part(name, Slice(base, data, end, "", skipped))


@dataclass(slots=True)
class Counts:
    """What was taken since the store was opened."""

    groups: int = 0
    events: int = 0
    duplicates: int = 0
    conflicts: int = 0
    rejected: Counter[str] = field(default_factory=Counter)


class Lander:
    """Lands records through a connection that nobody else uses meanwhile.

    Attributes:
        counts: what was landed.
        told_ns: for every run (by key) the latest time that it told; runs that told nothing are missing.
        corrected: how often something was done to the database beside landing.
        versions: for every run a number that grows with all that is taken of it; key None for what may be any's.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, archive_id: str, redaction: Redaction = USUAL) -> None:
        """`redaction`: of the beginnings of rejected lines. Raises ArchiveError where the database was made from
        another archive."""
        self._con = con
        self._redaction = redaction
        self.counts = Counts()
        self.told_ns: dict[int, int] = {}
        self.corrected = 0
        self.versions: dict[int | None, int] = {}
        self.attach(con, archive_id)

    def attach(self, con: duckdb.DuckDBPyConnection, archive_id: str) -> None:
        """Goes on with another connection to the same database. Raises as the constructor does."""
        con.execute(sql_text("position"))
        row = one_row(con, "SELECT archive_id FROM archive_position")
        if row is not None and row[0] != archive_id:
            raise ArchiveError(
                "The database was made from another archive: name that one with --archive, or name another database."
            )
        if row is None:
            con.execute("INSERT INTO archive_position VALUES (?, 0, 0)", [archive_id])
        self.told_ns.update(last_told(con))
        if con is not self._con:
            self._con.close()
        self._con, self._intake = con, Intake(con, redaction=self._redaction)

    def close(self) -> None:
        """Closes the connection."""
        self._con.close()

    def position(self) -> Position:
        """The place in the archive up to which all has landed."""
        row = one_row(self._con, "SELECT file, byte FROM archive_position")
        return Position() if row is None else Position(file=row[0], byte=row[1])

    def offsets(self, names: Sequence[str]) -> list[int]:
        """Where each stream stands."""
        return [state.offset_bytes for state in self._intake.streams(names)]

    def land(self, records: Sequence[Record], end: Callable[[], Position]) -> None:
        """Lands records, at most one of each stream, all or none of them. Raises duckdb.Error, and what `end` raises.

        `end` gives the position of the archive after them, once they are in it; it is asked for last. What is no event,
        but was done to the database, is done again.
        """
        told: dict[int, int] = {}
        events = [record for record in records if record.name != CONTROL]
        controls = [record for record in records if record.name == CONTROL]

        def also(con: duckdb.DuckDBPyConnection, stage: Stage | None) -> None:
            for control in controls:
                carry_out(con, control)
            if stage is not None and stage.kinds:
                union = " UNION ALL ".join(
                    f"SELECT run_id, ts_ns FROM staged_{kind.name} WHERE run_id IS NOT NULL" for kind in stage.kinds
                )
                told.update(con.execute(f"SELECT run_id, max(ts_ns) FROM ({union}) GROUP BY run_id").fetchall())
            place = end()
            con.execute("UPDATE archive_position SET file = ?, byte = ?", [place.file, place.byte])

        outcomes = self._intake.take([part_of(record) for record in events], also)
        counts = self.counts
        counts.groups += 1
        self.corrected += len(controls)
        runs: set[int | None] = set()
        for outcome in outcomes:
            counts.events += outcome.events
            counts.duplicates += outcome.duplicates
            counts.conflicts += outcome.conflicts
            runs |= outcome.runs
            if outcome.rejected:
                counts.rejected.update(outcome.rejected)
                runs.add(None)  # which run a bad line was of cannot be told
        for run, ts_ns in told.items():
            self.told_ns[run] = max(ts_ns, self.told_ns.get(run, 0))
        for key in runs:
            self.versions[key] = self.versions.get(key, 0) + 1

    def close_old(self, one: Retention, keep: Callable[[Record], Position]) -> bool:
        """Closes what can be closed of a run; False: nothing can, and nothing was done.

        `keep` has the record of it in the archive, before any of it counts. Raises OSError where that fails, with
        nothing done, or duckdb.Error.
        """
        con = self._con
        con.execute("BEGIN")
        try:
            if apply(con, one) is None:
                con.execute("ROLLBACK")
                return False
            end = keep(control_record({"retain": asdict(one)}))
            con.execute("UPDATE archive_position SET file = ?, byte = ?", [end.file, end.byte])
            con.execute("COMMIT")
        except BaseException:
            with suppress(duckdb.Error):  # a database that has failed has no transaction any more
                con.execute("ROLLBACK")
            raise
        self.counts.groups += 1
        self.corrected += 1
        return True


class Replay:
    """Puts archived groups together into large batches: with one transaction for each group it would take hours."""

    def __init__(self, land: Land) -> None:
        self._land = land
        self._held: dict[str, list[Record]] = {}
        self._held_bytes = 0
        self._end: Position | None = None

    def add(self, records: Sequence[Record], end: Position) -> None:
        """The next group, which ends at a position of the archive."""
        if any(record.name == CONTROL for record in records):
            self.flush()
            self._land(records, lambda: end)
            return
        if any(self._stands_apart(record) for record in records):
            self.flush()
        for record in records:
            self._held.setdefault(record.name, []).append(record)
            self._held_bytes += len(record.data)
        self._end = end
        if self._held_bytes >= _REPLAY_BYTES:
            self.flush()

    def _stands_apart(self, record: Record) -> bool:
        """Whether it cannot be joined with what is held of its stream: what carries over ends in between."""
        before = self._held.get(record.name)
        if not before:
            return False
        last = before[-1]
        return record.skipped or last.skipped or last.end_bytes != record.offset_bytes

    def flush(self) -> None:
        """Lands what is held."""
        if self._end is None:
            return
        end = self._end
        self._land([_joined(records) for records in self._held.values()], lambda: end)
        self._held, self._held_bytes, self._end = {}, 0, None


def _joined(records: Sequence[Record]) -> Record:
    first, last = records[0], records[-1]
    if first is last:
        return first
    # A final chunk may end without the end of its line; nothing follows it.
    return Record(
        name=first.name,
        offset_bytes=first.offset_bytes,
        end_bytes=last.end_bytes,
        data=b"".join(record.data for record in records),
    )
