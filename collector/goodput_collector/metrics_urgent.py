"""Which run /metrics must look at before its turn: with hundreds of runs a round takes minutes, and a hang must not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb

from goodput_analytics import RunState
from goodput_collector.metrics import AT_WORK
from goodput_collector.metrics_figures import NS_PER_S
from goodput_collector.told import Told

HURRY_S = 15.0
"""So often a run is computed that seems to stand still, or did when it was looked at last."""
HEARD_S = 120.0
"""A run is not urgent when its last event is older: no alert but that it is lost could come of it."""
STILL_S = 10.0
"""A run seems to stand still when it has told of something so long after its last step: a hang, or a long save."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A run that waits for its turn.

    Attributes:
        told: what /metrics tells of it now.
        heard_ns: when it told of something last.
        still: it seems to stand still.
    """

    told: Told
    heard_ns: int
    still: bool

    def urgent(self, now_ns: int) -> bool:
        """Whether it cannot wait."""
        state = self.told.report.state
        return (
            state in AT_WORK
            and (self.still or state is not RunState.RUNNING)
            and now_ns - self.told.figures.windows_end_ns > HURRY_S * NS_PER_S
            and now_ns - self.heard_ns <= HEARD_S * NS_PER_S
        )


def most_urgent(runs: Mapping[str, Waiting], now_ns: int) -> str | None:
    """The name of the run that has waited longest of those that cannot wait."""
    ends_ns = {name: one.told.figures.windows_end_ns for name, one in runs.items() if one.urgent(now_ns)}
    return min(ends_ns, key=lambda name: (ends_ns[name], name), default=None)


def standing_still(con: duckdb.DuckDBPyConnection, told_ns: Mapping[int, int]) -> set[int]:
    """The runs, by key, that have told of something long after their last step. `told_ns`: when each told last."""
    ends = con.execute("SELECT run_id, max(end_ns) FROM step_tips GROUP BY run_id").fetchall()
    return {run_id for run_id, end_ns in ends if told_ns.get(run_id, 0) - end_ns > STILL_S * NS_PER_S}
