"""The relations that may be asked for by name, and the queries that answer: nothing else is ever asked."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import pyarrow as pa

from goodput_analytics.views import VIEWS, View
from goodput_collector.errors import BadRequestError

OF_RANKS = frozenset({"lateness", "view_lateness", "view_worst_ranks"})
"""Those that look at the rows of single ranks, and so want relations that were made from all of them."""
ROWS_MAX = 1_000_000
ROWS_DEFAULT = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A relation of the analytics as others see it.

    Attributes:
        table: its name there, or a join.
        columns: what is given of it.
        begin, end: the columns between which a row lies in time; None where rows have no time.
        order: the columns that order the rows.
        view: what makes the rows instead, for a picture: the limit is then the number of points.
    """

    table: str
    columns: tuple[str, ...]
    begin: str | None = None
    end: str | None = None
    order: tuple[str, ...] = ()
    view: View | None = None


RELATIONS: dict[str, Relation] = {
    "ledger_intervals": Relation(
        table="ledger_intervals",
        columns=("run", "attempt", "category", "phase", "start_ns", "end_ns", "gpus", "step"),
        begin="start_ns",
        end="end_ns",
        order=("start_ns", "end_ns", "category", "phase", "step"),
    ),
    "attempts": Relation(
        table="gp_attempt_list",
        columns=("attempt", "job", "world_size", "start_ns", "end_ns", "end_cause", "first_step", "last_step"),
        begin="start_ns",
        end="end_ns",
        order=("attempt",),
    ),
    "steps": Relation(
        table="gp_window_parts",
        columns=(
            *("attempt", "life", "idx", "step", "c", "begin_ns", "end_ns", "start_ns", "ranks", "applied", "net_ns"),
            *("warmup_ns", "data_ns", "gap_ns", "hang_ns", "straggler_ns", "productive_ns", "latest_rank"),
        ),
        begin="begin_ns",
        end="end_ns",
        order=("attempt", "idx"),
    ),
    "lateness": Relation(
        table="gp_measures JOIN (SELECT attempt, life, step, begin_ns, end_ns FROM gp_window_parts) "
        "USING (attempt, life, step)",
        columns=("attempt", "life", "step", "rank", "begin_ns", "end_ns", "gap_ns", "late_ns"),
        begin="begin_ns",
        end="end_ns",
        order=("attempt", "life", "step", "rank"),
    ),
    "incidents": Relation(
        table="gp_incidents",
        columns=(
            *("attempt", "life", "cause", "last_progress_ns", "abort_ns", "detection_ns", "recovered_ns"),
            *("lost_steps", "hang_gpu_ns", "rework_gpu_ns", "restart_gpu_ns"),
        ),
        begin="last_progress_ns",
        end="abort_ns",
        order=("abort_ns", "attempt", "life"),
    ),
    "saves": Relation(
        table="gp_saves",
        columns=(
            *("attempt", "life", "step", "begin_ns", "end_ns", "blocking_ns", "async", "completed"),
            *("durable_ns", "failed"),
        ),
        begin="coalesce(begin_ns, durable_ns)",
        end="coalesce(durable_ns, end_ns)",
        order=("attempt", "life", "step"),
    ),
    "spans": Relation(
        table="gp_spans",
        columns=("attempt", "rank", "name", "category", "step", "begin_ns", "end_ns", "async", "ok", "open"),
        begin="begin_ns",
        end="end_ns",
        order=("begin_ns", "attempt", "rank"),
    ),
    "notes": Relation(
        table="gp_notes",
        columns=("attempt", "life", "inside", "abort_ns", "cause", "said_cause", "note", "who", "at_ns", "id"),
        begin="abort_ns",
        end="abort_ns",
        order=("abort_ns", "attempt", "life"),
    ),
    "stragglers": Relation(
        table="gp_stragglers",
        columns=("rank", "node", "loss_gpu_ns", "slowest_steps", "slowdown_ratio"),
        order=("rank", "node"),
    ),
    "totals": Relation(table="gp_totals", columns=("category", "phase", "gpu_ns"), order=("category", "phase")),
    "tails": Relation(
        table="gp_tails",
        columns=("attempt", "mark_ns", "still_ns", "activity", "limit_ns", "hung", "paused"),
        order=("attempt",),
    ),
    "signs": Relation(
        table="gp_signs",
        columns=("attempt", "rank", "last_sign_ns", "stop_ns", "stop_reason", "exit_ns", "phase", "step", "beat_ns"),
        order=("attempt", "rank"),
    ),
    **{name: Relation(table=name, columns=(), view=view) for name, view in VIEWS.items()},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What of a relation is wanted: rows that touch the time from `from_ns` to `to_ns`, and at most `limit` of them."""

    from_ns: int | None = None
    to_ns: int | None = None
    limit: int = ROWS_DEFAULT


def named(name: str) -> Relation:
    """The relation of that name. Raises BadRequestError (404)."""
    try:
        return RELATIONS[name]
    except KeyError:
        raise BadRequestError(
            f"There is no relation of that name; there are {', '.join(sorted(RELATIONS))}.", status=404
        ) from None


def select(con: duckdb.DuckDBPyConnection, name: str, window: Window) -> tuple[pa.Table, bool]:
    """Rows of a relation of the run whose relations stand in the connection; whether there are more than that."""
    relation = named(name)
    if not 1 <= window.limit <= ROWS_MAX:
        raise BadRequestError(f"A limit is from 1 to {ROWS_MAX:,} rows.")
    if relation.view is not None:
        return relation.view(con, window.from_ns, window.to_ns, window.limit), False
    conditions, values = [], []
    if window.from_ns is not None and relation.end is not None:
        conditions.append(f"coalesce({relation.end} >= ?, true)")
        values.append(window.from_ns)
    if window.to_ns is not None and relation.begin is not None:
        conditions.append(f"coalesce({relation.begin} < ?, true)")
        values.append(window.to_ns)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    columns = ", ".join(f'"{column}"' for column in relation.columns)
    order = ", ".join(f'"{column}" NULLS FIRST' for column in relation.order)
    query = f"SELECT {columns} FROM {relation.table}{where} ORDER BY {order} LIMIT ?"
    table: pa.Table = con.sql(query, params=[*values, window.limit + 1]).to_arrow_table()
    return table.slice(0, window.limit), table.num_rows > window.limit
