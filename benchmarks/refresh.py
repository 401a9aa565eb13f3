"""What a refresh costs when ten steps are new, after a short and after a long history.

    python benchmarks/refresh.py [--ranks 1024] [--steps 1977 97977] [--write]

For each length a live run is written into a database of its own, a first report keeps what is complete of it (as a
collector does), ten more steps of every rank land, and the report is asked for again: once as it is, reading what is
kept, once from all rows of ranks, the baseline. Counted are the rows of ranks' steps that the queries scanned, by
DuckDB's own profile, and timed are both reports in turn, in one process; what counts are the ratios.
`--write` puts the result into docs/PERFORMANCE.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import runs
from document import put_section
from ledger import machine

import goodput_analytics.relations
from goodput_analytics import Early
from goodput_analytics.report import report_and_summary
from goodput_collector import early
from goodput_collector.database import open_database
from goodput_collector.landing import Landing

HEADING = "## Refresh"
NEW_STEPS = 10
REPEATS = 3


def later_steps(ranks: int, steps: int) -> Iterator[str]:
    """Ten more steps of every rank of a run of one life, as event lines."""
    for step in range(steps + 1, steps + NEW_STEPS + 1):
        for rank in range(ranks):
            skew_ns = (rank * 7919 % 20011 - 10005) * 1000
            end_ns = runs.T0_NS + step * runs.STEP_NS + skew_ns
            event = {
                "kind": "step", "run": runs.RUN, "source": f"bench-0-{rank}", "seq": 10**9 + step, "ts_ns": end_ns,
                "step": step, "start_ns": end_ns - runs.STEP_NS * 9 // 10, "end_ns": end_ns,
                "busy_ns": runs.STEP_NS * 7 // 10 + rank * 1000,
            }  # fmt: skip
            yield json.dumps(event) + "\n"


def ask(con: duckdb.DuckDBPyConnection, how: Early) -> float:
    """Make the report; the seconds it took."""
    begun = time.perf_counter()
    report_and_summary(con, runs.RUN, early=how)
    return time.perf_counter() - begun


@contextmanager
def watched(con: duckdb.DuckDBPyConnection, profile: Path) -> Iterator[Callable[[], int]]:
    """Have the rows of `ev_step` counted that the relations scan; a relation's own statement is looked at."""
    rows = 0
    real = goodput_analytics.relations.run_sql
    users = [module for module in _modules() if getattr(module, "run_sql", None) is real]

    def run_sql(con: duckdb.DuckDBPyConnection, name: str, *rest: Any) -> None:
        nonlocal rows
        profile.unlink(missing_ok=True)
        real(con, name, *rest)
        if profile.exists():
            rows += sum(scanned(one) for one in json.loads(profile.read_text())["operator"])

    con.execute("PRAGMA enable_profiling = 'json'")
    con.execute("SET profiling_mode = 'detailed'")
    con.execute(f"SET profiling_output = '{profile}'")
    for module in users:
        module.run_sql = run_sql
    try:
        yield lambda: rows
    finally:
        for module in users:
            module.run_sql = real
        con.execute("PRAGMA disable_profiling")


def _modules() -> list[Any]:
    import sys

    return [module for name, module in sys.modules.items() if name.startswith("goodput_analytics.")]


def scanned(operator: dict[str, Any]) -> int:
    """Rows of `ev_step` that an operator and those below it looked at."""
    own = 0
    if str(operator.get("extra_info", {}).get("Table", "")).endswith(".ev_step"):
        own = int(operator.get("rows_scanned", 0))
    return own + sum(scanned(one) for one in operator.get("children", ()))


def measure(folder: Path, ranks: int, steps: int) -> dict[str, float]:
    """One length of history."""
    db = folder / f"{steps}.duckdb"
    runs.write(db, runs.Shape(ranks=ranks, steps=steps, span_every=250))
    base = open_database(db)
    base.execute("DELETE FROM ev_stop")
    con = base.cursor()
    first_s = ask(con, Early.FIND)
    found = early.found(con)
    if found is not None:
        early.keep(base.cursor(), found)
    file = folder / "later.jsonl"
    file.write_text("".join(later_steps(ranks, steps)))
    Landing(base.cursor()).take([file])
    told = {}
    for how in (Early.READ, Early.NONE):
        with watched(con, folder / "profile.json") as rows:
            ask(con, how)
            told[how] = rows()
    took: dict[Early, list[float]] = {Early.READ: [], Early.NONE: []}
    for _ in range(REPEATS):
        for how, times in took.items():
            times.append(ask(con, how))
    con.close()
    base.close()
    db.unlink()
    return {
        "rank_steps": ranks * steps,
        "first_s": first_s,
        "rows": told[Early.READ],
        "all_rows": told[Early.NONE],
        "s": statistics.median(took[Early.READ]),
        "all_s": statistics.median(took[Early.NONE]),
    }


def main() -> None:
    """Measure, print, and write where that is wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--steps", type=int, nargs="+", default=[977, 97_657])
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        told = [measure(Path(folder), args.ranks, steps) for steps in args.steps]
    lines = [
        f"| rank-steps of history, {args.ranks:,} ranks | rows of ranks scanned | of all | report, s "
        "| from all rows, s | ratio |",
        "|---:|---:|---:|---:|---:|---:|",
        *(
            f"| {one['rank_steps']:,.0f} | {one['rows']:,.0f} | {one['all_rows']:,.0f} | {one['s']:.2f} "
            f"| {one['all_s']:.2f} | {one['s'] / one['all_s']:.2f} |"
            for one in told
        ),
    ]
    today = datetime.date.today().isoformat()
    text = "\n".join(
        [
            HEADING,
            "",
            "Ten new steps of every rank after a short and after a long history; complete blocks are kept reduced:",
            "",
            *lines,
            "",
            f"`benchmarks/refresh.py`: medians of {REPEATS} reports in turn, in one process; the rows of ranks' steps "
            "that DuckDB says it scanned in one of them. Not kept are those of the last block of 1,000 numbers. "
            f"{machine()}, {today}.",
            "",
        ]
    )
    print(text)
    if args.write:
        put_section(text)


if __name__ == "__main__":
    main()
