"""Which run /metrics must look at before its turn: with hundreds of runs a round takes minutes, and a hang must not."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import duckdb

from goodput_analytics import RunState
from goodput_collector.metrics import AT_WORK
from goodput_collector.metrics_figures import NS_PER_S
from goodput_collector.told import Told

HURRY_S = 15.0
"""So often a run is computed that seems to stand still, or did when it was looked at last."""
STILL_S = 10.0
"""A run seems to stand still when it has told of something so long after its last step: a hang, or a long save."""


def most_urgent(shown: Mapping[str, Told], still: Collection[str], now_ns: int) -> str | None:
    """Of what is told of runs, by name, the one that has been told for longest among those that cannot wait."""
    waited = {
        name: told.figures.windows_end_ns
        for name, told in shown.items()
        if told.report.state in AT_WORK
        and now_ns - told.figures.windows_end_ns > HURRY_S * NS_PER_S
        and (name in still or told.report.state is not RunState.RUNNING)
    }
    return min(waited, key=lambda name: (waited[name], name), default=None)


def standing_still(con: duckdb.DuckDBPyConnection, told_ns: Mapping[int, int]) -> set[int]:
    """The runs, by key, that have told of something long after their last step. `told_ns`: when each told last."""
    ends = con.execute("SELECT run_id, max(end_ns) FROM step_tips GROUP BY run_id").fetchall()
    return {run_id for run_id, end_ns in ends if told_ns.get(run_id, 0) - end_ns > STILL_S * NS_PER_S}
