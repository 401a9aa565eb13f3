"""What /metrics needs of a run beside its report, read off the relations that stand in a connection."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import duckdb

from goodput_analytics import Category
from goodput_analytics.relations import rows, run_sql

NS_PER_S = 1_000_000_000
WINDOWS = ("5m", "1h", "6h", "1d", "3d")
"""The windows of `goodput_window_…`; `metric_windows.sql` has their lengths."""
STEP_BOUNDS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0)
"""The upper bounds of the buckets of `goodput_step_seconds`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """Figures of one run.

    Attributes:
        windows_end_ns: when the windows end.
        window_gpu_ns: GPU-nanoseconds by window and category; every window has every category.
        step_buckets: steps by how long they took, one number for each bound and one for what took longer.
        step_ns: the time of all these steps, declared spans left out.
        progress_ns: the last proof of progress, None before the first step.
        silent_ranks: ranks of the live attempt that never reported; None where none lives.
        first_span: the live attempt is in a declared span of a name that it has not completed before; None where none
            lives.
        labels: the labels that the process that started last was given.
    """

    windows_end_ns: int
    window_gpu_ns: Mapping[str, Mapping[str, int]]
    step_buckets: tuple[int, ...]
    step_ns: int
    progress_ns: int | None
    silent_ranks: int | None
    first_span: bool | None
    labels: Mapping[str, str]


def read_figures(con: duckdb.DuckDBPyConnection, end_ns: int) -> RunFigures:
    """Reads them, in a connection in which the relations of a run stand; the windows end at `end_ns`."""
    bounds_ns = [round(bound * NS_PER_S) for bound in STEP_BOUNDS_S]
    run_id = con.execute("SELECT run_id FROM gp_run").fetchall()[0][0]
    for name in ("metric_windows", "metric_steps", "metric_facts"):
        run_sql(con, name, {"end_ns": end_ns, "bounds_ns": bounds_ns, "run_id": run_id})
    windows = {window: {category.value: 0 for category in Category} for window in WINDOWS}
    for row in rows(con, "SELECT win, category, gpu_ns FROM gp_metric_windows"):
        windows[row["win"]][row["category"]] = int(row["gpu_ns"])
    buckets = [0] * (len(STEP_BOUNDS_S) + 1)
    step_ns = 0
    for row in rows(con, "SELECT bucket, steps, step_ns FROM gp_metric_steps"):
        buckets[row["bucket"]] = int(row["steps"])
        step_ns += int(row["step_ns"])
    facts = rows(con, "SELECT * FROM gp_metric_facts")[0]
    return RunFigures(
        windows_end_ns=end_ns,
        window_gpu_ns=windows,
        step_buckets=tuple(buckets),
        step_ns=step_ns,
        progress_ns=facts["progress_ns"],
        silent_ranks=facts["silent_ranks"],
        first_span=facts["first_span"],
        labels=_labels(facts["labels"]),
    )


def _labels(text: str | None) -> dict[str, str]:
    """The labels that are plain values; what a trainer put there beside them says nothing to a metric."""
    try:
        told = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    if not isinstance(told, dict):
        return {}
    return {name: str(value) for name, value in told.items() if isinstance(value, str | int | float)}
