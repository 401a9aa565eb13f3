"""Slices of streams put together, and their lines told apart: plain steps, other objects, and what is no object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from goodput_collector.contract import Reason
from goodput_collector.lines import HEAD_BYTES, MAX_LINE_BYTES, Fragment, split_line
from goodput_collector.statements import LENIENT, PLAIN_STEP

Positions = npt.NDArray[np.int64]

_SCAN_BYTES = 64 * 2**10  # small enough to stay in the processor's cache
_ROWS = 16_384  # lines that one thread takes at a time
_FEW = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What was not taken at a position of the batch; nothing carries over one that is `unreadable`."""

    pos: int
    reason: str
    head: bytes
    unreadable: bool


class Batch:
    """The bytes of several slices, one after the other; a *position* is a place in them and orders all lines.

    Each slice begins at one of `starts`; the position before it belongs to nothing.
    """

    def __init__(self, slices: Sequence[bytes]) -> None:
        parts = [data if data.endswith(b"\n") else data + b"\n" for data in slices]
        self.data = parts[0] if len(parts) == 1 else b"".join(parts)
        ends = np.cumsum(np.fromiter(map(len, parts), dtype=np.int64, count=len(parts)))
        self.starts: Positions = np.concatenate([np.zeros(1, dtype=np.int64), ends])[: len(parts)]
        self.faults: list[Fault] = []
        self._piece_ends: dict[int, int] = {}

    def sort_lines(self, con: duckdb.DuckDBPyConnection, *, fast: bool = True) -> tuple[pa.Table, pa.Table]:
        """The lines (pos, line) that are plain steps, and all other JSON objects; `faults` has the rest.

        Without `fast` every line goes the careful way, by Python's reader; the outcome is the same.
        """
        con.register(
            "goodput_slices",
            pa.table({"slice": np.arange(len(self.starts), dtype=np.int64), "start": self.starts}),
        )
        bounds = _line_bounds(self.data)
        starts, ends = bounds[:-1], bounds[1:] - 1
        lines = pa.LargeStringArray.from_buffers(len(starts), pa.py_buffer(bounds), pa.py_buffer(self.data))
        bad = self._bad_bytes(lines, starts, ends) if fast else np.ones(len(starts), dtype=np.bool_)
        blank = starts == ends
        good = ~(bad | blank)
        plain = _table(np.ascontiguousarray(starts), lines, None if good.all() else good)
        odd = plain.slice(0, 0)
        careful = starts[bad & ~blank]
        if fast and plain.num_rows:
            plain, odd = _parted(con, plain, _NOT_PLAIN, [PLAIN_STEP])
            if odd.num_rows:
                odd, unsure = _parted(con, odd, _UNSURE, [LENIENT])
                careful = np.sort(np.concatenate([careful, unsure["pos"].to_numpy()]))
        if len(careful):
            pieces = self._split(con, careful, ends[np.searchsorted(starts, careful)])
            odd = pa.concat_tables([odd, pieces])
        return plain, odd

    def by_slice(self, positions: str, *columns: str) -> str:
        """A query for (slice, columns…, number) over the query `positions`, which has `pos` and those columns; for the
        connection that the lines were sorted with."""
        given = "".join(f", {column}" for column in columns)
        if len(self.starts) == 1:
            return f"SELECT 0{given}, count(*) FROM ({positions}) GROUP BY ALL HAVING count(*) > 0"
        return (
            f"SELECT s.slice{given}, count(*) FROM ({positions}) p "
            "ASOF JOIN goodput_slices s ON p.pos >= s.start GROUP BY ALL"
        )

    def slice_of(self, pos: int) -> int:
        """Which slice the position is in."""
        return int(np.searchsorted(self.starts, pos, side="right")) - 1

    def reject(self, pos: int, reason: str) -> None:
        """Notes an object that could be read but not taken."""
        end = self._piece_ends.get(pos)
        if end is None:
            end = self.data.index(b"\n", pos)
            while self.data[end - 1] in b" \t\r":
                end -= 1
        head = self.data[pos : min(end, pos + HEAD_BYTES)]
        self.faults.append(Fault(pos=pos, reason=reason, head=head, unreadable=False))

    def _bad_bytes(self, lines: pa.LargeStringArray, starts: Positions, ends: Positions) -> npt.NDArray[np.bool_]:
        """Which lines are too long, or hold NULs or bytes that are no UTF-8."""
        bad: npt.NDArray[np.bool_] = ends - starts > MAX_LINE_BYTES
        if b"\0" in self.data:
            bad[np.searchsorted(ends, _places(self.data, lambda part: part == 0))] = True
        try:
            lines.validate(full=True)
        except pa.ArrowInvalid:
            beyond_ascii = np.unique(np.searchsorted(ends, _places(self.data, lambda part: part >= 0x80)))
            for index in beyond_ascii:
                try:
                    self.data[starts[index] : ends[index]].decode("utf-8")
                except UnicodeDecodeError:
                    bad[index] = True
        return bad

    def _split(self, con: duckdb.DuckDBPyConnection, starts: Positions, ends: Positions) -> pa.Table:
        """The objects in bad lines, (pos, line); what is left over becomes faults."""
        positions: list[int] = []
        texts: list[str] = []
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            for piece in split_line(self.data[start:end]):
                at = start + piece.start
                if isinstance(piece, Fragment):
                    self._unreadable(at, start + piece.end, piece.reason, unreadable=piece.unreadable)
                else:
                    self._piece_ends[at] = start + piece.end
                    positions.append(at)
                    texts.append(self.data[at : start + piece.end].decode("utf-8"))
        pieces = pa.table({"pos": pa.array(positions, pa.int64()), "line": pa.array(texts, pa.large_string())})
        # DuckDB's reader is the stricter one here and there, such as with half a surrogate pair.
        good, refused = _parted(con, pieces, "SELECT pos FROM goodput_lines WHERE NOT json_valid(line)", [])
        for at in refused["pos"].to_pylist():
            self._unreadable(at, self._piece_ends[at], Reason.NOT_JSON, unreadable=True)
        return good

    def _unreadable(self, start: int, end: int, reason: Reason, *, unreadable: bool) -> None:
        head = self.data[start : min(end, start + HEAD_BYTES)]
        self.faults.append(Fault(pos=start, reason=reason, head=head, unreadable=unreadable))


# A text cannot hold a quote here, so `"kind":` is nothing but the field.
_NOT_PLAIN = """SELECT pos FROM goodput_lines WHERE NOT (regexp_full_match(line, $1) AND contains(line, '"kind":'))"""
_UNSURE = """SELECT pos FROM goodput_lines
WHERE NOT json_valid(line) OR NOT starts_with(line, '{') OR regexp_matches(line, $1)"""


def _parted(
    con: duckdb.DuckDBPyConnection, lines: pa.Table, query: str, parameters: list[str]
) -> tuple[pa.Table, pa.Table]:
    """The lines that `query` does not name, and those that it does."""
    con.register("goodput_lines", lines)
    named = con.execute(query, parameters).fetchnumpy()["pos"]
    con.unregister("goodput_lines")
    if not len(named):
        return lines, lines.slice(0, 0)
    named.sort()
    places = np.searchsorted(lines["pos"].to_numpy(), named)
    if len(named) > _FEW:
        mask = np.zeros(lines.num_rows, dtype=np.bool_)
        mask[places] = True
        return lines.filter(pa.array(~mask)), lines.filter(pa.array(mask))
    # What lies between a few lines need not be copied to leave them out.
    bounds = [-1, *places.tolist(), lines.num_rows]
    between = [lines.slice(low + 1, high - low - 1) for low, high in pairwise(bounds) if high > low + 1]
    others = pa.concat_tables(between) if between else lines.slice(0, 0)
    return others, pa.concat_tables([lines.slice(place, 1) for place in places.tolist()])


def _table(starts: Positions, lines: pa.LargeStringArray, mask: npt.NDArray[np.bool_] | None) -> pa.Table:
    # Made of buffers, not by `pa.array`, which would load pandas for it (0.3 s).
    positions = pa.Int64Array.from_buffers(pa.int64(), len(starts), [None, pa.py_buffer(starts)])
    table = pa.table({"pos": positions, "line": lines})
    if mask is not None:
        table = table.filter(pa.array(mask))
    return pa.Table.from_batches(table.to_batches(max_chunksize=_ROWS), table.schema)


def _line_bounds(data: bytes) -> Positions:
    """Where lines begin, and last the end of the data, which ends with a newline."""
    newlines = _places(data, lambda part: part == 10)
    bounds = np.empty(len(newlines) + 1, dtype=np.int64)
    bounds[0] = 0
    bounds[1:] = newlines + 1
    return bounds


def _places(data: bytes, test: Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.bool_]]) -> Positions:
    whole = np.frombuffer(data, dtype=np.uint8)
    found = [np.flatnonzero(test(whole[at : at + _SCAN_BYTES])) + at for at in range(0, len(whole), _SCAN_BYTES)]
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)
