"""Traces that others recorded, as events: so that the question who was slow can be asked of them too.

    python examples/traces_to_events.py operations trace.parquet > events.jsonl
    python examples/traces_to_events.py batch-times job.csv > events.jsonl
    goodput ingest events.jsonl --db traces.duckdb && goodput report traces --db traces.duckdb

`operations`: one row per operation (rank, stage, step, optype, start_ts and duration in seconds of the step), as the
what-if analysis of Lin et al. (OSDI 2025) publishes them. A rank's own work is the time of its computing operations;
all ranks leave a step together, when its last operation ends. The stage of the pipeline is the rank's group.
`batch-times`: one row per worker and moment (worker, time in seconds, batch_time_norm in milliseconds): its own work of
one step; the step lasts as long as the slowest worker's.
Steps that were left out of a trace are closed up: they are numbered as they come, from 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

import duckdb

OWN = ("forward-compute", "backward-compute", "optimizer", "gc")
"""Operations in which a rank waits for nobody."""
QUERIES = {
    "operations": """
        SELECT dense_rank() OVER (ORDER BY step) AS step, rank, 'stage-' || any_value(stage) AS grp,
            coalesce(sum(duration) FILTER (list_contains($own, optype)), 0) AS own_s,
            max(max(start_ts + duration)) OVER (PARTITION BY step) AS step_s
        FROM read_parquet($file) GROUP BY step, rank ORDER BY step, rank""",
    "batch-times": """
        SELECT dense_rank() OVER (ORDER BY "time") AS step, worker AS rank, NULL AS grp,
            avg(batch_time_norm) / 1000 AS own_s, max(max(batch_time_norm)) OVER (PARTITION BY "time") / 1000 AS step_s
        FROM read_csv($file) GROUP BY "time", worker ORDER BY step, rank""",
}
T0_NS = 1_700_000_000_000_000_000


def events(kind: str, file: str, run: str) -> Iterator[dict[str, Any]]:
    """The steps of every rank, one after another."""
    bound = {"file": file, "own": list(OWN)} if kind == "operations" else {"file": file}
    rows = duckdb.execute(QUERIES[kind], bound).fetchall()
    ranks = sorted({(rank, group) for _, rank, group, _, _ in rows})
    number = {rank: at for at, (rank, _) in enumerate(ranks)}
    for rank, group in ranks:
        start = {
            "v": 1,
            "rank": number[rank],
            "world_size": len(ranks),
            "process_start_ns": T0_NS,
            "meta": {"rank": rank},
        }
        yield told("start", run, rank, 0, T0_NS, **start, **({} if group is None else {"group": group}))
    begun_ns, last = T0_NS, 1
    length_ns = 0
    for step, rank, _, own_s, step_s in rows:
        if step != last:
            begun_ns, last = begun_ns + length_ns, step
        length_ns = round(step_s * 1e9)
        end_ns = begun_ns + length_ns
        # Own work that ran beside other own work cannot have taken longer than the step.
        busy_ns = min(round(own_s * 1e9), length_ns)
        yield told("step", run, rank, step, end_ns, step=step, start_ns=begun_ns, end_ns=end_ns, busy_ns=busy_ns)
    for rank, _ in ranks:
        yield told("stop", run, rank, last + 1, begun_ns + length_ns, reason="finished")


def told(kind: str, run: str, of: int, seq: int, ts_ns: int, **more: Any) -> dict[str, Any]:
    """One event of a rank."""
    return {"kind": kind, "run": run, "source": f"{run}-{of}", "seq": seq, "ts_ns": ts_ns, **more}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=sorted(QUERIES))
    parser.add_argument("file")
    parser.add_argument("--run", default="traces", help="the name of the run")
    options = parser.parse_args()
    for event in events(options.kind, options.file, options.run):
        sys.stdout.write(json.dumps(event) + "\n")
