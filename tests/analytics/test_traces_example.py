"""Traces of others become events of ours (`examples/traces_to_events.py`), and who was slow is found in them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from loading import loaded

import goodput_analytics
from goodput_analytics.slow_suspects import suspects

EXAMPLE = Path(__file__).parents[2] / "examples" / "traces_to_events.py"
Event = dict[str, Any]


def converted(kind: str, file: Path) -> list[Event]:
    told = subprocess.run([sys.executable, EXAMPLE, kind, file], check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in told.splitlines()]


def operations(file: Path, *, slow: int | None) -> Path:
    """Eight ranks in two stages, of which the second computes twice as long; a slow rank takes half as long again."""
    chance = Random(1)
    rows = []
    for step in range(1, 41):
        for rank in range(8):
            own_s = (1 + rank // 4) * (1.5 if rank == slow else 1.0) * chance.gauss(1, 0.005)
            parts = {"forward-compute": own_s / 2, "forward-recv": 6 - own_s, "backward-compute": own_s / 2}
            begun_s = 0.0
            for optype, duration_s in parts.items():
                rows.append({"rank": rank, "stage": rank // 4, "step": 10 * step, "optype": optype,
                             "start_ts": begun_s, "duration": duration_s})  # fmt: skip
                begun_s += duration_s
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file


def test_operations_tell_the_slow_rank_and_uneven_stages_are_none(tmp_path: Path) -> None:
    events = converted("operations", operations(tmp_path / "trace.parquet", slow=2))
    steps = [event for event in events if event["kind"] == "step"]
    assert {event["step"] for event in steps} == set(range(1, 41)) and len(steps) == 8 * 40
    assert len({(event["start_ns"], event["end_ns"]) for event in steps}) == 40  # all ranks leave it together
    assert {event["group"] for event in events if event["kind"] == "start"} == {"stage-0", "stage-1"}
    with loaded(events) as con:
        told = goodput_analytics.report(con, "traces")
        (named,) = [row for row in suspects(con).to_pylist() if row["grain"] == "rank"]
    assert named["rank"] == 2
    (straggler,) = told.stragglers
    assert straggler.rank == 2
    assert straggler.loss_gpu_s >= 0.9 * told.gpu_s["straggler"] > 0
    with loaded(converted("operations", operations(tmp_path / "even.parquet", slow=None))) as con:
        goodput_analytics.report(con, "traces")
        assert suspects(con).to_pylist() == []


def test_batch_times_tell_who_was_slow_and_when(tmp_path: Path) -> None:
    file = tmp_path / "job.csv"
    chance = Random(2)
    rows = [
        f"{worker},25,{10 * at + 1},{1000 if worker == 3 and 100 <= at < 112 else round(chance.gauss(430, 8))}"
        for at in range(200)
        for worker in range(6)
    ]
    file.write_text("worker,gpu,time,batch_time_norm\n" + "\n".join(rows) + "\n")
    with loaded(converted("batch-times", file)) as con:
        goodput_analytics.report(con, "traces")
        (named,) = [row for row in suspects(con).to_pylist() if row["grain"] == "rank"]
    assert (named["rank"], named["severe"]) == (3, True)
    assert named["first_step"] >= 101 and named["last_step"] <= 112
