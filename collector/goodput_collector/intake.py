"""One transaction of the landing: a batch of slices read, settled, put into the tables, and their offsets moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import duckdb
import pyarrow as pa

from goodput_collector.batch import Batch
from goodput_collector.database import one_row, sql_text
from goodput_collector.redaction import USUAL, Redaction
from goodput_collector.settle import Repeats, settle
from goodput_collector.shown import refresh
from goodput_collector.stage import Carry, Stage
from goodput_collector.streams import Slice

_STATES_HELD = 200_000
REJECTED_EACH = 100
"""Rejected lines of one stream and reason of which the beginning is kept; the others are counted."""
REJECTED_ALL = 100_000
"""Rejected lines of which the beginning is kept, in all."""
_Row = tuple[int, int, str, bytes, bool]


class StreamState(NamedTuple):
    """How far a stream was taken, and what carries over to its next line."""

    stream_id: int | None = None
    offset_bytes: int = 0
    fingerprint: str | None = None
    carry_run: str | None = None
    carry_source: str | None = None


class Part(NamedTuple):
    """A slice of the stream `name`. `begins`: at byte 0 of a file."""

    name: str
    slice: Slice
    begins: bool = False


class Outcome(NamedTuple):
    """What came of one part; `runs` are the keys of the runs that it told of (None: an allocation without one)."""

    events: int
    duplicates: int
    conflicts: int
    rejected: Counter[str]
    runs: frozenset[int | None] = frozenset()


class Intake:
    """Takes batches of parts, each in one transaction, through a connection that nobody else uses meanwhile.

    Without `fast` every line goes the careful way, by Python's reader; the outcome is the same. `redaction`: of the
    beginnings of rejected lines.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, *, fast: bool = True, redaction: Redaction = USUAL) -> None:
        self._con = con
        self._fast = fast
        self._redaction = redaction
        # What the table `streams` holds, for the streams asked for lately: looking each one up would be most of the
        # cost of a batch of thousands.
        self._states: dict[str, StreamState] = {}
        self._runs_shown = -1
        con.execute(sql_text("macros"))

    def stream(self, name: str) -> StreamState:
        """What is known of a stream; nothing, if it is new."""
        return self.streams([name])[0]

    def streams(self, names: Sequence[str]) -> list[StreamState]:
        """What is known of each stream."""
        states = self._states
        unknown = [name for name in names if name not in states]
        if unknown:
            if len(states) + len(unknown) > _STATES_HELD:
                states.clear()
                unknown = list(names)
            states.update(dict.fromkeys(unknown, StreamState()))
            found = self._con.execute(
                "SELECT name, stream_id, offset_bytes, fingerprint, carry_run, carry_source FROM streams "
                "WHERE name IN (SELECT unnest(?))",
                [unknown],
            ).fetchall()
            for name, stream_id, offset_bytes, fingerprint, run, source in found:
                states[name] = StreamState(
                    stream_id=stream_id,
                    offset_bytes=offset_bytes,
                    fingerprint=fingerprint,
                    carry_run=run,
                    carry_source=source,
                )
        return [states[name] for name in names]

    def take(
        self, parts: Sequence[Part], also: Callable[[duckdb.DuckDBPyConnection, Stage | None], None] | None = None
    ) -> list[Outcome]:
        """Lands the parts, at most one of each stream, all or none of them; the outcomes are in their order.

        `also` is done in the same transaction, with the stage of the batch (None where no part has data).
        """
        self._con.execute("BEGIN")
        try:
            outcomes, states = self._take(parts, also)
            self._con.execute("COMMIT")
        except BaseException:
            self._runs_shown = -1
            try:
                self._con.execute("ROLLBACK")
            except duckdb.Error:
                pass  # A database that has failed has no transaction any more; the first error says more.
            raise
        self._states.update(zip((part.name for part in parts), states, strict=True))
        return outcomes

    def _take(
        self, parts: Sequence[Part], also: Callable[[duckdb.DuckDBPyConnection, Stage | None], None] | None
    ) -> tuple[list[Outcome], list[StreamState]]:
        known = self.streams([part.name for part in parts])
        states = [
            StreamState(stream_id=state.stream_id) if part.begins else state
            for part, state in zip(parts, known, strict=True)
        ]
        batch = Batch([part.slice.data for part in parts])
        events: list[dict[int | None, int]] = [{} for _ in parts]
        repeats = Repeats.none(len(parts))
        carries = [(state.carry_run, state.carry_source) for state in states]
        stage = None
        if any(part.slice.data for part in parts):
            stage = Stage(self._con, batch, fast=self._fast)
            carries = stage.carry(carries)
            stage.type_events()
            events = stage.events()
            repeats = settle(self._con, batch, stage.kinds)
            stage.land()
            self._show_new_runs()
        moved = self._move(parts, states, carries)
        ids = [state.stream_id for state in moved if state.stream_id is not None]
        self._note_runs(ids, events)
        rejected = self._keep_rejected(parts, ids, batch)
        if also is not None:
            also(self._con, stage)
        outcomes = [
            Outcome(
                events=sum(events[index].values()),
                duplicates=repeats.duplicates[index],
                conflicts=repeats.conflicts[index],
                rejected=rejected[index],
                runs=frozenset(events[index]),
            )
            for index in range(len(parts))
        ]
        return outcomes, moved

    def _show_new_runs(self) -> None:
        """A new run may take back the name that another was given."""
        row = one_row(self._con, "SELECT count(*), EXISTS (FROM corrections) FROM runs")
        if row is not None and row[1] and row[0] != self._runs_shown:
            refresh(self._con)
            self._runs_shown = row[0]

    def _move(
        self, parts: Sequence[Part], states: Sequence[StreamState], carries: Sequence[Carry]
    ) -> list[StreamState]:
        """Sets how far each stream was taken; the streams' new states."""
        con = self._con
        next_id = 0
        if any(state.stream_id is None for state in states):
            row = one_row(con, "SELECT coalesce(max(stream_id), 0) + 1 FROM streams")
            assert row is not None
            next_id = int(row[0])
        ids: list[int] = []
        for state in states:
            if state.stream_id is None:
                ids.append(next_id)
                next_id += 1
            else:
                ids.append(state.stream_id)
        runs = [run for run, _ in carries]
        sources = [source for _, source in carries]
        for index, part in enumerate(parts):
            if part.slice.skipped and any(one.breaks for one in part.slice.skipped):
                runs[index] = sources[index] = None
        ends = [part.slice.end_bytes for part in parts]
        prints = [part.slice.fingerprint for part in parts]
        moved = list(map(StreamState, ids, ends, prints, runs, sources))
        table = pa.table(
            {
                "stream_id": pa.array(ids, pa.int32()),
                "name": pa.array([part.name for part in parts], pa.string()),
                "offset_bytes": pa.array(ends, pa.int64()),
                "fingerprint": pa.array(prints, pa.string()),
                "carry_run": pa.array(runs, pa.string()),
                "carry_source": pa.array(sources, pa.string()),
                "new": pa.array([state.stream_id is None for state in states], pa.bool_()),
                "begins": pa.array([part.begins for part in parts], pa.bool_()),
            }
        )
        con.register("goodput_moved", table)
        con.execute(sql_text("move"))
        con.unregister("goodput_moved")
        return moved

    def _note_runs(self, ids: Sequence[int], events: Sequence[dict[int | None, int]]) -> None:
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
        counts: dict[int, Counter[str]] = {}
        rows: list[_Row] = []
        for fault in batch.faults:
            index = batch.slice_of(fault.pos)
            offset = fault.pos - int(batch.starts[index]) + parts[index].slice.base_bytes
            rows.append((ids[index], offset, str(fault.reason), self._redaction.line(fault.head), False))
            counts.setdefault(index, Counter())[str(fault.reason)] += 1
        for index, part in enumerate(parts):
            for one in part.slice.skipped:
                rows.append(
                    (ids[index], one.offset_bytes, str(one.reason), self._redaction.line(one.head), one.pending)
                )
                counts.setdefault(index, Counter())[str(one.reason)] += 1
        if rows:
            self._put_down(self._bounded(sorted(rows)))
        nothing: Counter[str] = Counter()
        return [counts.get(index, nothing) for index in range(len(parts))]

    def _bounded(self, rows: Sequence[_Row]) -> list[_Row]:
        """What of the rejected lines is kept; how many more there were is added up in the database.

        The first of each stream and reason are kept, in the order of the stream, so it makes no difference how they
        came in batches. An unfinished line is kept: it will go.
        """
        con = self._con
        ids = list({row[0] for row in rows})
        held: Counter[tuple[int, str]] = Counter()
        for stream_id, reason, lines in con.execute(
            "SELECT stream_id, reason, count(*) FROM rejected WHERE NOT pending AND stream_id IN (SELECT unnest(?)) "
            "GROUP BY ALL",
            [ids],
        ).fetchall():
            held[stream_id, reason] = lines
        row = one_row(con, "SELECT count(*) FROM rejected")
        room = REJECTED_ALL - (int(row[0]) if row else 0)
        kept: list[_Row] = []
        more: Counter[tuple[int, str]] = Counter()
        for one in rows:
            key, pending = (one[0], one[2]), one[4]
            if not pending and (held[key] >= REJECTED_EACH or room <= 0):
                more[key] += 1
                continue
            kept.append(one)
            room -= 1
            if not pending:
                held[key] += 1
        if more:
            keys = list(more)
            counted = pa.table(
                {
                    "stream_id": pa.array([key[0] for key in keys], pa.int32()),
                    "reason": pa.array([key[1] for key in keys], pa.string()),
                    "lines": pa.array([more[key] for key in keys], pa.int64()),
                }
            )
            con.register("goodput_more", counted)
            con.execute(sql_text("rejected_more"))
            con.unregister("goodput_more")
        return kept

    def _put_down(self, rows: Sequence[_Row]) -> None:
        if not rows:
            return
        types = (pa.int32(), pa.int64(), pa.string(), pa.binary(), pa.bool_())
        names = ("stream_id", "offset_bytes", "reason", "head", "pending")
        columns = [pa.array(column, type_) for column, type_ in zip(zip(*rows, strict=True), types, strict=True)]
        self._con.register("goodput_rejected", pa.table(columns, names=list(names)))
        self._con.execute("INSERT INTO rejected SELECT * FROM goodput_rejected ORDER BY stream_id, offset_bytes")
        self._con.unregister("goodput_rejected")
