"""Relations reduced to what a screen can show, whatever the length of the run. The ledger of the run must stand in the
connection (`ledger.build`, or a report).

Each takes the stretch of time to look at, in nanoseconds since the epoch (None: from the run's beginning, to its end),
and how many points there may be; `sql/view_NAME.sql` says what the columns mean. None of them leaves anything behind.
"""

from __future__ import annotations

from typing import Protocol

import duckdb
import pyarrow as pa

from goodput_analytics.relations import sql, statements
from goodput_analytics.slow_suspects import suspects
from goodput_analytics.step_changes import step_changes

MOST_POINTS = 2_000
"""Points that a view has at most: a screen is not wider."""
MOST_ROWS = 128
"""Ranks that are told apart in a picture."""
MOST_STEPS = 1_000
"""Steps whose ranks are looked at one by one."""
MOST_LISTED = 20_000
"""Rows of a view that lists things."""


class View(Protocol):
    """Something that can be looked at."""

    def __call__(
        self, con: duckdb.DuckDBPyConnection, from_ns: int | None = None, to_ns: int | None = None, most: int = ...
    ) -> pa.Table:
        """Its rows, in order."""


def _view(name: str, most_of_all: int = MOST_POINTS) -> View:
    def view(
        con: duckdb.DuckDBPyConnection,
        from_ns: int | None = None,
        to_ns: int | None = None,
        most: int = most_of_all,
    ) -> pa.Table:
        values = {
            "from_ns": from_ns,
            "to_ns": to_ns,
            "most": max(1, min(most, most_of_all)),
            "most_rows": MOST_ROWS,
            "most_steps": MOST_STEPS,
        }
        named = statements(name)[0].named_parameters
        bound = {key: value for key, value in values.items() if key in named}
        found: pa.Table = con.sql(sql(name), params=bound).to_arrow_table()
        return found

    return view


timeline = _view("view_timeline")
at_risk = _view("view_at_risk")
lateness = _view("view_lateness", 400)
worst_ranks = _view("view_worst_ranks", 16)
step_times = _view("view_step_times")
endings = _view("view_endings", MOST_LISTED)
places = _view("view_places", MOST_LISTED)

VIEWS: dict[str, View] = {
    "view_timeline": timeline,
    "view_at_risk": at_risk,
    "view_lateness": lateness,
    "view_worst_ranks": worst_ranks,
    "view_step_times": step_times,
    "view_endings": endings,
    "view_places": places,
    "view_suspects": suspects,
    "view_step_changes": step_changes,
}
"""By the name under which they are asked for."""
