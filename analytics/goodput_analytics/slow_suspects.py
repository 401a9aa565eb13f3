"""Who was the slowest far more often than chance has it, in all steps or in those that waited far longer than usual.

The ledger of the run must stand in the connection (`ledger.build`, or a report). Only relations of steps are read,
never the rows of ranks, and nothing is left behind. `sql/view_suspects.sql` says what the columns mean.
"""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

from goodput_analytics.relations import sql

MOST_SUSPECTS = 256
"""Suspects that are told; those who cost most stay."""
NAME = ("grain", "attempt", "rank", "node", "device")


def suspects(
    con: duckdb.DuckDBPyConnection, from_ns: int | None = None, to_ns: int | None = None, most: int = MOST_SUSPECTS
) -> pa.Table:
    """A view: the suspects by all steps, and those that only the steps with great waits tell of; costliest first."""
    steady = steady_suspects(con, from_ns, to_ns)
    severe = _told(con, from_ns, to_ns, severe=True)
    known = set(zip(*(steady[name].to_pylist() for name in NAME), strict=True))
    new = [key not in known for key in zip(*(severe[name].to_pylist() for name in NAME), strict=True)]
    told = pa.concat_tables([steady, severe.filter(pa.array(new, pa.bool_()))])
    order = sorted(range(told.num_rows), key=lambda row: -told["waited_gpu_s"][row].as_py())
    return told.take(pa.array(order[: max(1, min(most, MOST_SUSPECTS))], pa.int64()))


def steady_suspects(
    con: duckdb.DuckDBPyConnection, from_ns: int | None = None, to_ns: int | None = None, *, ranks: bool = True
) -> pa.Table:
    """The suspects by all steps between two moments (None: from the beginning, to the end); without `ranks` devices and
    nodes only, for two thirds of the work."""
    return _told(con, from_ns, to_ns, severe=False, ranks=ranks)


def _told(
    con: duckdb.DuckDBPyConnection, from_ns: int | None, to_ns: int | None, *, severe: bool, ranks: bool = True
) -> pa.Table:
    bound: dict[str, Any] = {
        "from_ns": from_ns,
        "to_ns": to_ns,
        "most": MOST_SUSPECTS,
        "severe": severe,
        "ranks": ranks,
    }
    return con.sql(sql("view_suspects"), params=bound).to_arrow_table()
