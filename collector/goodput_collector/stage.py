"""A batch's lines as typed events in temporary tables, each with the keys of its run and source."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from goodput_collector import statements
from goodput_collector.batch import Batch
from goodput_collector.contract import KINDS, Kind, Reason
from goodput_collector.database import one_row, sql_text

Carry = tuple[str | None, str | None]
"""The run and the source that hold for a line without them."""

_STEP = KINDS["step"]


class Stage:
    """Holds one batch in the tables `plain`, `odd`, `staged_KIND` and `keys` of its connection.

    Use: `carry`, `type_events`, `events`; then, when copies are settled, `land`. What cannot be taken becomes a
    fault of the batch.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, batch: Batch, *, fast: bool) -> None:
        self._con = con
        self._batch = batch
        plain, odd = batch.sort_lines(con, fast=fast)
        self._plain, self._odd = self._read(plain, odd)
        self._lacking = 0
        self.kinds: list[Kind] = []

    def carry(self, carries: Sequence[Carry]) -> list[Carry]:
        """Finds whom the lines without run or source belong to. Takes what carries into each slice, tells what out."""
        con, batch = self._con, self._batch
        self._lacking = sum(
            self._one(f"SELECT count(*) FROM {table} WHERE run IS NULL OR source IS NULL") for table in ("plain", "odd")
        )
        breaks = [fault.pos for fault in batch.faults if fault.unreadable]
        if not (self._lacking or breaks or self._odd or len(carries) > 1):
            con.execute("CREATE OR REPLACE TEMP TABLE carried (pos BIGINT, run VARCHAR, source VARCHAR)")
            last = one_row(con, "SELECT run, source FROM plain ORDER BY pos DESC LIMIT 1")
            return [(last[0], last[1])] if last else list(carries)
        begins = [int(start) - 1 for start in batch.starts]
        blanks: list[str | None] = [None] * len(breaks)
        marks = pa.table(
            {
                "pos": pa.array([*begins, *breaks], pa.int64()),
                "run": pa.array([*(run for run, _ in carries), *blanks], pa.string()),
                "source": pa.array([*(source for _, source in carries), *blanks], pa.string()),
                "breaks": pa.array([True] * (len(begins) + len(breaks)), pa.bool_()),
            }
        )
        con.register("goodput_marks", marks)
        con.register("goodput_begins", pa.table({"pos": pa.array(begins, pa.int64())}))
        con.execute("SET VARIABLE goodput_lacking = $1", [self._lacking > 0])
        held = _held(con.sql(sql_text("carry")).to_arrow_table())
        con.unregister("goodput_marks")
        con.unregister("goodput_begins")
        con.register("marks", held)
        con.execute(sql_text("carried"))
        con.unregister("marks")
        if self._lacking:
            con.register("goodput_holding", _holding(held, con.execute("SELECT pos FROM plain").fetchnumpy()["pos"]))
            con.execute(sql_text("fill"))
            con.unregister("goodput_holding")
        # The last place of each slice: the one before the next slice's begin.
        ends = [*(start - 1 for start in begins[1:]), len(batch.data)]
        last = _indices(np.searchsorted(held["pos"].to_numpy(), ends, side="right") - 1)
        return list(zip(held["run"].take(last).to_pylist(), held["source"].take(last).to_pylist(), strict=True))

    def type_events(self) -> None:
        """Makes `staged_KIND` and `keys` of all that can be taken."""
        con = self._con
        odd_kinds = self._type_odd() if self._odd else set()
        if self._lacking and self._plain:
            self._reject(
                "SELECT pos, CASE WHEN source IS NULL THEN 'no_source' ELSE 'no_run' END FROM plain "
                "WHERE source IS NULL OR run IS NULL OR run = ''"
            )
        self.kinds = [kind for kind in KINDS.values() if kind.name in odd_kinds or (kind is _STEP and self._plain)]
        names = [f"SELECT run, source FROM odd_{name} WHERE fault IS NULL" for name in odd_kinds]
        if self._plain:
            names.append("SELECT DISTINCT run, source FROM plain WHERE run <> '' AND source IS NOT NULL")
        if not names:
            con.execute("CREATE OR REPLACE TEMP TABLE keys (pos BIGINT, run_id INTEGER, source_id INTEGER, seq BIGINT)")
            return
        con.execute(f"CREATE OR REPLACE TEMP TABLE staged_names AS {' UNION '.join(names)}")
        con.execute(sql_text("names"))
        for kind in self.kinds:
            plain = kind is _STEP and self._plain
            odd = kind.name in odd_kinds
            con.execute(statements.staged(kind, plain=plain, odd=odd))
        if self._one("SELECT count(*) FROM raw_horizons"):
            self._leave_out_late()
        keys = " UNION ALL ".join(f"SELECT pos, run_id, source_id, seq FROM staged_{kind.name}" for kind in self.kinds)
        con.execute(f"CREATE OR REPLACE TEMP TABLE keys AS {keys}")

    def events(self) -> list[dict[int | None, int]]:
        """How many events each slice has of each run (by key; None: an allocation without one)."""
        counts: list[dict[int | None, int]] = [{} for _ in self._batch.starts]
        found = self._con.execute(self._batch.by_slice("SELECT pos, run_id FROM keys", "run_id")).fetchall()
        for index, run_id, number in found:
            counts[index][run_id] = number
        return counts

    def land(self) -> None:
        """Moves the staged events into their tables, links the steps and counts their blocks."""
        for kind in self.kinds:
            if kind is not _STEP:
                self._con.execute(statements.land(kind))
                continue
            self._con.execute(sql_text("tips"))
            in_order = self._one(sql_text("in_order")) == 1
            self._con.execute(statements.land_steps(in_order=in_order))
            self._con.execute(statements.batch_blocks(in_order=in_order))
            self._con.execute(sql_text("add_blocks"))
            self._con.execute(sql_text("move_tips"))
        if self._one("SELECT count(*) FROM unlinked"):
            self._con.execute(sql_text("relink"))
            self._con.execute(f"INSERT INTO step_blocks {statements.blocks_of('relinked')}")

    def _read(self, plain: pa.Table, odd: pa.Table) -> tuple[bool, bool]:
        """Fills `plain` and `odd`; whether they have rows."""
        con = self._con
        con.register("goodput_plain", plain)
        con.execute(statements.plain_steps())
        con.unregister("goodput_plain")
        lacks = statements.plain_step_lacks()
        if self._one(f"SELECT count(*) FROM plain WHERE {lacks}"):
            found = con.execute(f"SELECT pos FROM plain WHERE {lacks}").fetchnumpy()["pos"]
            moved = plain.filter(pa.array(np.isin(plain["pos"].to_numpy(), found)))
            odd = pa.concat_tables([odd, moved])
            con.execute(f"DELETE FROM plain WHERE {lacks}")
        con.register("goodput_odd", odd)
        con.execute(statements.odd_fields())
        con.unregister("goodput_odd")
        return self._one("SELECT count(*) FROM plain") > 0, odd.num_rows > 0

    def _type_odd(self) -> set[str]:
        """Types the odd events; the kinds that there are."""
        con = self._con
        con.execute(sql_text("heads"), {"kinds": list(KINDS)})
        self._reject("SELECT pos, fault FROM odd_heads WHERE fault IS NOT NULL")
        found = con.execute("SELECT DISTINCT kind FROM odd_heads WHERE fault IS NULL").fetchall()
        kinds = {name for (name,) in found}
        for name in kinds:
            con.execute(statements.odd_events(KINDS[name]))
            self._reject(f"SELECT pos, fault FROM odd_{name} WHERE fault IS NOT NULL")
        return kinds

    def _leave_out_late(self) -> None:
        """What a run told before the moment up to which its steps are closed is rejected: it comes too late."""
        for kind in self.kinds:
            late = (
                f"SELECT e.pos FROM staged_{kind.name} e "
                "JOIN raw_horizons h ON h.run_id = e.run_id AND e.ts_ns < h.before_ns"
            )
            self._reject(f"SELECT pos, '{Reason.LATE}' FROM ({late})")
            self._con.execute(f"DELETE FROM staged_{kind.name} WHERE pos IN ({late})")

    def _reject(self, query: str) -> None:
        for pos, fault in self._con.execute(query).fetchall():
            self._batch.reject(pos, fault)

    def _one(self, query: str) -> int:
        row = one_row(self._con, query)
        assert row is not None
        return int(row[0])


def _held(said: pa.Table) -> pa.Table:
    """What holds from each place on (pos, run, source), of what is said there (pos, run, source, breaks), in order: the
    last that was said, unless something after it ended what held."""
    places = np.arange(said.num_rows)
    began = np.maximum.accumulate(np.where(said["breaks"].to_numpy(), places, 0))
    columns = {"pos": said["pos"]}
    for name in ("run", "source"):
        column = said[name]
        last = np.maximum.accumulate(np.where(column.is_valid().to_numpy(), places, -1))
        # One more place at the end, which says nothing.
        with_nothing = pa.chunked_array([*column.chunks, pa.nulls(1, column.type)], column.type)
        columns[name] = with_nothing.take(_indices(np.where(last >= began, last, said.num_rows)))
    return pa.table(columns)


def _holding(held: pa.Table, positions: npt.NDArray[np.int64]) -> pa.Table:
    """What holds (run, source) at each position: the last of `held` before it."""
    last = np.searchsorted(held["pos"].to_numpy(), positions, side="right") - 1
    places = pa.Int32Array.from_buffers(pa.int32(), len(last), [None, pa.py_buffer(last.astype(np.int32))])
    return pa.table(
        {name: pa.DictionaryArray.from_arrays(places, held[name].combine_chunks()) for name in ("run", "source")}
    )


def _indices(places: npt.NDArray[np.int64]) -> pa.Int64Array:
    # Made of buffers, not by `pa.array`, which would load pandas for it (0.3 s).
    return pa.Int64Array.from_buffers(pa.int64(), len(places), [None, pa.py_buffer(np.ascontiguousarray(places))])
