"""From which step on the steps of a run take longer or shorter, and who is the slowest from then on.

The ledger of the run must stand in the connection (`ledger.build`, or a report). Only relations of steps are read,
never the rows of ranks, and nothing is left behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from goodput_analytics.changes import change_points
from goodput_analytics.relations import sql
from goodput_analytics.settings import NS_PER_S
from goodput_analytics.slow_suspects import steady_suspects

MOST_CHANGES = 16
"""Changes that are told; the largest stay."""
SAME_RATIO = 0.8
"""A rank stands for its node if it was the slowest in this share of the node's steps or more."""
NEWLY_RATIO = 0.5
"""Who was the slowest before, too, in more than this share of what came after, is not what changed."""
PARTS = ("data_wait", "unattributed", "straggler", "productive")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepChange:
    """The level of the step time changes, and holds until the next change or the end of what is looked at.

    Attributes:
        step: the first step that takes longer (or shorter).
        attempt: the attempt in which it lies.
        since_ns, until_ns: the time of the new level, in nanoseconds since the epoch.
        until_step: its last step.
        steps: steps in it.
        lasts: no later change ends it.
        before_s, after_s: the median step before (since the change before) and after, in seconds.
        change_ratio: after over before, less 1: 0.056 is 5.6 % longer.
        extra_gpu_s: the difference of the two times the steps after, in GPU-seconds; negative if they are shorter.
        part: the part of a step that changed most, in the ledger's words.
        part_s: by how much its median changed, in seconds per step.
        ranks_before, ranks: ranks that reported before and after; where they differ, a step is another thing.
        new_attempt: the change lies at the beginning of an attempt.
        node, rank: who is the slowest from then on, far more often than chance has it, and was not before; None where
            nobody can be named. `rank` with `node`: it alone, in its one attempt, is slow on the node.
        slowest_ratio: the share of the steps with a wait in which it is; None without anybody.
    """

    step: int
    attempt: int
    since_ns: int
    until_ns: int
    until_step: int
    steps: int
    lasts: bool
    before_s: float
    after_s: float
    change_ratio: float
    extra_gpu_s: float
    part: str
    part_s: float
    ranks_before: int
    ranks: int
    new_attempt: bool
    node: str | None = None
    rank: int | None = None
    slowest_ratio: float | None = None


SCHEMA = pa.schema(
    [
        pa.field(f.name, {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(), "str": pa.string()}[
            str(f.type).partition(" ")[0]
        ])
        for f in fields(StepChange)
    ]
)  # fmt: skip


def find_changes(
    con: duckdb.DuckDBPyConnection, from_ns: int | None = None, to_ns: int | None = None
) -> list[StepChange]:
    """All changes of the step time between two moments (None: from the beginning, to the end), in order of time; who is
    the slowest since is not asked yet."""
    told = con.execute(sql("step_series"), {"from_ns": from_ns, "to_ns": to_ns}).fetchnumpy()
    places = change_points(np.asarray(told["step_ns"], dtype=np.float64))
    bounds = [0, *places, len(told["step"])]
    return [
        _change(told, before, begin, end) for before, begin, end in zip(bounds, bounds[1:], bounds[2:], strict=False)
    ]


def _change(told: Mapping[str, Any], before: int, begin: int, end: int) -> StepChange:
    """The change with which the windows from `begin` to `end` differ from those from `before` to `begin`."""
    step_ns, c = told["step_ns"], told["c"]
    before_s = float(np.median(step_ns[before:begin])) / NS_PER_S
    after_s = float(np.median(step_ns[begin:end])) / NS_PER_S
    part, part_s = _most_changed(told, before, begin, end)
    attempt = told["attempt"]
    return StepChange(
        step=int(told["step"][begin] - c[begin] + 1),
        attempt=int(attempt[begin]),
        since_ns=int(told["begin_ns"][begin]),
        until_ns=int(told["end_ns"][end - 1]),
        until_step=int(told["step"][end - 1]),
        steps=int(np.sum(c[begin:end])),
        lasts=end == step_ns.size,
        before_s=before_s,
        after_s=after_s,
        change_ratio=after_s / before_s - 1,
        extra_gpu_s=(after_s - before_s) * float(np.sum(c[begin:end] * told["gpus"][begin:end])),
        part=part,
        part_s=part_s,
        ranks_before=int(np.median(told["ranks"][before:begin])),
        ranks=int(np.median(told["ranks"][begin:end])),
        new_attempt=bool(attempt[begin] != attempt[begin - 1]),
    )


def _most_changed(told: Mapping[str, Any], before: int, begin: int, end: int) -> tuple[str, float]:
    """The part whose median changed most, in the direction of the whole, and by how many seconds."""
    parts = {
        "data_wait": told["data_ns"],
        "unattributed": told["gap_ns"],
        "straggler": told["straggler_ns"],
        "productive": told["step_ns"] - told["data_ns"] - told["gap_ns"] - told["straggler_ns"],
    }
    by = {name: float(np.median(ns[begin:end]) - np.median(ns[before:begin])) / NS_PER_S for name, ns in parts.items()}
    longer = float(np.median(told["step_ns"][begin:end])) > float(np.median(told["step_ns"][before:begin]))
    name = max(by, key=lambda part: by[part] if longer else -by[part])
    return name, by[name]


def name_slowest(con: duckdb.DuckDBPyConnection, change: StepChange, from_ns: int | None = None) -> StepChange:
    """The change with who is the slowest since then, if somebody is and was not before.

    Args:
        con: the connection in which the ledger stands.
        change: one of `find_changes`.
        from_ns: where the level before it began; None: at the beginning of the run.
    """
    since = steady_suspects(con, change.since_ns, change.until_ns).to_pylist()
    if not since:
        return change
    nodes = [row for row in since if row["grain"] == "node"]
    ranks = [row for row in since if row["grain"] == "rank"]
    worst = max(nodes or ranks, key=lambda row: (row["slowest_steps"], row["slowest_ratio"]))
    earlier = [row for row in steady_suspects(con, from_ns, change.since_ns).to_pylist() if _same(row, worst)]
    if any(row["slowest_ratio"] > NEWLY_RATIO * worst["slowest_ratio"] for row in earlier):
        return change
    alone = [
        row["rank"]
        for row in ranks
        if row["node"] == worst["node"] and row["slowest_steps"] >= SAME_RATIO * worst["slowest_steps"]
    ]
    return replace(
        change,
        node=worst["node"],
        rank=alone[0] if alone else None,
        slowest_ratio=worst["slowest_ratio"],
    )


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    if one["grain"] != other["grain"]:
        return False
    name = ("node",) if one["grain"] == "node" else ("attempt", "rank")
    return all(one[key] == other[key] for key in name)


def step_changes(
    con: duckdb.DuckDBPyConnection, from_ns: int | None = None, to_ns: int | None = None, most: int = MOST_CHANGES
) -> pa.Table:
    """A view: the changes of the step time in order of time, at most `most`, the largest; its columns are the
    attributes of StepChange."""
    found = find_changes(con, from_ns, to_ns)
    begun = dict(zip((change.since_ns for change in found), [from_ns, *(c.since_ns for c in found)], strict=False))
    largest = sorted(found, key=lambda change: -abs(change.extra_gpu_s))[: max(1, min(most, MOST_CHANGES))]
    told = [name_slowest(con, change, begun[change.since_ns]) for change in sorted(largest, key=lambda c: c.since_ns)]
    return pa.table({name: [getattr(change, name) for change in told] for name in SCHEMA.names}, schema=SCHEMA)
