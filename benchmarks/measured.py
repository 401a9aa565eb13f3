"""One measured piece of work in a process of its own: what the other benchmarks start to have it done cold.

    python benchmarks/measured.py make FILE SHAPE        writes a run (SHAPE: the fields of runs.Shape as JSON)
    python benchmarks/measured.py bare FILE              a maximum and a median per step, nothing else
    python benchmarks/measured.py ledger FILE            the report of the run, relation by relation
    python benchmarks/measured.py starts FILE OUT        the steps' starts, as 64-bit integers of nanoseconds

The last line it prints is JSON: `wall_s` and `cpu_s` (of all threads) from opening the database to the result, imports
left out; `peak_bytes`, the most memory that the process ever held; `parts`, for `ledger`, the seconds of each relation.
"""

from __future__ import annotations

import array
import importlib
import json
import pkgutil
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import runs

import goodput_analytics

BARE = "SELECT step, max(end_ns), median(busy_ns) FROM ev_step GROUP BY step"


def peak_bytes() -> int:
    """The most memory this process held. Linux carries getrusage's figure over from the process that started it, so
    what the kernel says of this program's own memory is preferred."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def timed(work: Callable[[], object]) -> dict[str, Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return {
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "peak_bytes": peak_bytes(),
    }


def bare(file: str) -> None:
    found = duckdb.connect(file, read_only=True).execute(BARE).fetchall()
    assert found


def watch_relations() -> dict[str, list[float]]:
    """Have every relation's seconds (wall, processor) noted as it is built."""
    spent: dict[str, list[float]] = {}
    build = importlib.import_module("goodput_analytics.relations").run_sql

    def build_timed(con: duckdb.DuckDBPyConnection, name: str, *args: Any, **kwargs: Any) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        build(con, name, *args, **kwargs)
        total = spent.setdefault(name, [0.0, 0.0])
        total[0] += time.perf_counter() - wall
        total[1] += time.process_time() - cpu

    for info in pkgutil.iter_modules(goodput_analytics.__path__, "goodput_analytics."):
        module = importlib.import_module(info.name)
        if getattr(module, "run_sql", None) is build:
            module.run_sql = build_timed  # type: ignore[attr-defined]
    return spent


def ledger(file: str) -> dict[str, Any]:
    spent = watch_relations()
    ratios: list[float | None] = []

    def work() -> None:
        made = goodput_analytics.report(duckdb.connect(file, read_only=True), runs.RUN)
        ratios.append(made.goodput_ratio)

    cost = timed(work)
    return {**cost, "parts": spent, "goodput_ratio": ratios[0]}


def starts(file: str, out: str) -> None:
    con = duckdb.connect(file, read_only=True)
    told = con.execute("SELECT start_ns FROM ev_step ORDER BY seq").fetchnumpy()["start_ns"]
    Path(out).write_bytes(array.array("q", told.tobytes()).tobytes())


def main(kind: str, file: str, *rest: str) -> None:
    if kind == "make":
        cost = timed(lambda: runs.write(Path(file), runs.Shape(**json.loads(rest[0]))))
    elif kind == "bare":
        cost = timed(lambda: bare(file))
    elif kind == "ledger":
        cost = ledger(file)
    elif kind == "starts":
        cost = timed(lambda: starts(file, rest[0]))
    else:
        raise SystemExit(__doc__)
    print(json.dumps(cost))


if __name__ == "__main__":
    main(*sys.argv[1:])
