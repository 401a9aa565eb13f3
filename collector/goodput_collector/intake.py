"""One transaction of the landing: a batch of slices read, settled, put into the tables, and their offsets moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from goodput_collector.batch import Batch
from goodput_collector.database import one_row, sql_text
from goodput_collector.settle import Repeats, settle
from goodput_collector.stage import Carry, Stage
from goodput_collector.streams import Slice


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """How far a stream was taken, and what carries over to its next line."""

    stream_id: int | None = None
    offset_bytes: int = 0
    fingerprint: str | None = None
    carry_run: str | None = None
    carry_source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A slice of the stream `name`. `begins`: at byte 0 of a file."""

    name: str
    slice: Slice
    begins: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one part."""

    events: int
    duplicates: int
    conflicts: int
    rejected: Counter[str]


class Intake:
    """Takes batches of parts, each in one transaction, through a connection that nobody else uses meanwhile.

    Without `fast` every line goes the careful way, by Python's reader; the outcome is the same.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, *, fast: bool = True) -> None:
        self._con = con
        self._fast = fast
        con.execute(sql_text("macros"))

    def stream(self, name: str) -> StreamState:
        """What is known of a stream; nothing, if it is new."""
        row = one_row(
            self._con,
            "SELECT stream_id, offset_bytes, fingerprint, carry_run, carry_source FROM streams WHERE name = ?",
            [name],
        )
        if row is None:
            return StreamState()
        return StreamState(
            stream_id=row[0], offset_bytes=row[1], fingerprint=row[2], carry_run=row[3], carry_source=row[4]
        )

    def take(self, parts: Sequence[Part]) -> list[Outcome]:
        """Lands the parts, at most one of each stream, all or none of them; the outcomes are in their order."""
        self._con.execute("BEGIN")
        try:
            outcomes = self._take(parts)
        except BaseException:
            self._con.execute("ROLLBACK")
            raise
        self._con.execute("COMMIT")
        return outcomes

    def _take(self, parts: Sequence[Part]) -> list[Outcome]:
        states = [self._state(part) for part in parts]
        batch = Batch([part.slice.data for part in parts])
        events: list[Counter[int | None]] = [Counter() for _ in parts]
        repeats = Repeats.none(len(parts))
        carries = [(state.carry_run, state.carry_source) for state in states]
        if any(part.slice.data for part in parts):
            stage = Stage(self._con, batch, fast=self._fast)
            carries = stage.carry(carries)
            stage.type_events()
            events = stage.events()
            repeats = settle(self._con, batch, stage.kinds)
            stage.land()
        ids = self._move(parts, states, carries)
        self._note_runs(ids, events)
        rejected = self._keep_rejected(parts, ids, batch)
        return [
            Outcome(
                events=sum(events[index].values()),
                duplicates=repeats.duplicates[index],
                conflicts=repeats.conflicts[index],
                rejected=rejected[index],
            )
            for index in range(len(parts))
        ]

    def _state(self, part: Part) -> StreamState:
        known = self.stream(part.name)
        return StreamState(stream_id=known.stream_id) if part.begins else known

    def _move(self, parts: Sequence[Part], states: Sequence[StreamState], carries: Sequence[Carry]) -> list[int]:
        """Sets how far each stream was taken; the streams' keys."""
        con = self._con
        ids: list[int] = []
        for part, state, (run, source) in zip(parts, states, carries, strict=True):
            if any(one.breaks for one in part.slice.skipped):
                run = source = None
            values = [part.slice.end_bytes, part.slice.fingerprint, run, source]
            stream_id = state.stream_id
            if stream_id is None:
                row = one_row(con, "SELECT coalesce(max(stream_id), 0) + 1 FROM streams")
                assert row is not None
                stream_id = int(row[0])
                con.execute("INSERT INTO streams VALUES (?, ?, ?, ?, ?, ?)", [stream_id, part.name, *values])
            else:
                con.execute(
                    "UPDATE streams SET offset_bytes = ?, fingerprint = ?, carry_run = ?, carry_source = ? "
                    "WHERE stream_id = ?",
                    [*values, stream_id],
                )
                # An unfinished line has gone on; but if another file has its stream's name now, it never will.
                if part.begins:
                    con.execute("UPDATE rejected SET pending = false WHERE stream_id = ? AND pending", [stream_id])
                else:
                    con.execute("DELETE FROM rejected WHERE stream_id = ? AND pending", [stream_id])
            ids.append(stream_id)
        return ids

    def _note_runs(self, ids: Sequence[int], events: Sequence[Counter[int | None]]) -> None:
        pairs = [(stream, run) for stream, runs in zip(ids, events, strict=True) for run in runs if run is not None]
        if not pairs:
            return
        streams, runs = zip(*pairs, strict=True)
        table = pa.table({"stream_id": pa.array(streams, pa.int32()), "run_id": pa.array(runs, pa.int32())})
        self._con.register("goodput_pairs", table)
        self._con.execute(
            "INSERT INTO stream_runs SELECT * FROM goodput_pairs ANTI JOIN stream_runs USING (stream_id, run_id)"
        )
        self._con.unregister("goodput_pairs")

    def _keep_rejected(self, parts: Sequence[Part], ids: Sequence[int], batch: Batch) -> list[Counter[str]]:
        """Puts down what was not taken; how much of it by reason, for each part."""
        counts: list[Counter[str]] = [Counter() for _ in parts]
        rows: list[tuple[int, int, str, bytes, bool]] = []
        for fault in batch.faults:
            index = batch.slice_of(fault.pos)
            offset = fault.pos - int(batch.starts[index]) + parts[index].slice.base_bytes
            rows.append((ids[index], offset, str(fault.reason), fault.head, False))
            counts[index][str(fault.reason)] += 1
        for index, part in enumerate(parts):
            for one in part.slice.skipped:
                rows.append((ids[index], one.offset_bytes, str(one.reason), one.head, one.pending))
                counts[index][str(one.reason)] += 1
        if rows:
            types = (pa.int32(), pa.int64(), pa.string(), pa.binary(), pa.bool_())
            names = ("stream_id", "offset_bytes", "reason", "head", "pending")
            columns = [pa.array(column, type_) for column, type_ in zip(zip(*rows, strict=True), types, strict=True)]
            self._con.register("goodput_rejected", pa.table(columns, names=list(names)))
            self._con.execute("INSERT INTO rejected SELECT * FROM goodput_rejected ORDER BY stream_id, offset_bytes")
            self._con.unregister("goodput_rejected")
        return counts
