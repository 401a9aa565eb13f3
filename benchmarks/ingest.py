"""How fast events land, beside a bare `read_json` of the same file into one table of a database file.

Both run in turn on the same machine, several times; what counts is the ratio of the medians. Run it with
`python benchmarks/ingest.py [--steps N …] [--repeats N] [--write]`; `--write` puts the result into docs/PERFORMANCE.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import duckdb
from document import put_section

from goodput_collector.landing import ingest_files

TARGET_RATIO = 0.33
RANKS = 8
T0_NS = 1_700_000_000_000_000_000
HEADING = "## Ingest"

BARE = """
CREATE TABLE events AS SELECT * FROM read_json($file, format = 'newline_delimited', columns = {
    kind: 'VARCHAR', run: 'VARCHAR', source: 'VARCHAR', seq: 'BIGINT', ts_ns: 'BIGINT', step: 'BIGINT',
    start_ns: 'BIGINT', end_ns: 'BIGINT', data_ns: 'BIGINT', busy_ns: 'BIGINT', count: 'BIGINT', applied: 'BOOLEAN',
    loss: 'DOUBLE', lr: 'DOUBLE'})
"""


def write_steps(path: Path, steps: int, *, carried: bool) -> None:
    """A file of `steps` events of some ranks, a `start` and then steps; `carried`: run and source only in that."""
    with path.open("w") as out:
        for rank in range(RANKS):
            who = f'"run":"bench","source":"bench-rank-{rank}-4f1c",'
            out.write(f'{{"kind":"start",{who}"seq":0,"ts_ns":{T0_NS},"v":1,"rank":{rank},"world_size":{RANKS}}}\n')
            named = "" if carried else who
            for number in range(1, steps // RANKS):
                start_ns = T0_NS + number * 1_003_000_017 + rank * 10_007
                out.write(
                    f'{{"kind":"step",{named}"seq":{number},"ts_ns":{start_ns + 900_000_001},"step":{number},'
                    f'"start_ns":{start_ns},"end_ns":{start_ns + 900_000_001},'
                    f'"data_ns":{number * 7919 % 50_000_000},"busy_ns":{number * 104_729 % 800_000_000}}}\n'
                )


def bare_s(file: Path, folder: Path) -> float:
    """Seconds of a bare read into one table of a new database file, closed at the end."""
    db = folder / "bare.duckdb"
    db.unlink(missing_ok=True)
    began = time.perf_counter()
    con = duckdb.connect(str(db))
    con.execute(BARE, {"file": str(file)})
    con.close()
    return time.perf_counter() - began


def landed_s(file: Path, folder: Path, steps: int) -> float:
    """Seconds of an ingest of the file into a new database."""
    db = folder / "landed.duckdb"
    db.unlink(missing_ok=True)
    began = time.perf_counter()
    summary = ingest_files(db, [file])
    took_s = time.perf_counter() - began
    assert summary.new == steps // RANKS * RANKS and not summary.rejected, summary
    return took_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, nargs="+", default=[1_000_000, 5_000_000])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="put the result into docs/PERFORMANCE.md")
    args = parser.parse_args()
    rows: list[str] = []
    worst = float("inf")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for steps in args.steps:
            for carried in (False, True):
                file = folder / "steps.jsonl"
                write_steps(file, steps, carried=carried)
                bare, landed, bare_cpu, landed_cpu = [], [], [], []
                for _ in range(args.repeats):
                    before = time.process_time()
                    bare.append(bare_s(file, folder))
                    between = time.process_time()
                    landed.append(landed_s(file, folder, steps))
                    bare_cpu.append(between - before)
                    landed_cpu.append(time.process_time() - between)
                ratio = statistics.median(bare) / statistics.median(landed)
                cpu_ratio = statistics.median(bare_cpu) / statistics.median(landed_cpu)
                worst = min(worst, ratio)
                form = "named once" if carried else "named on each line"
                rows.append(
                    f"| {steps:,} | {form} | {steps / statistics.median(bare):,.0f} "
                    f"| {steps / statistics.median(landed):,.0f} | {ratio:.2f} | {cpu_ratio:.2f} |"
                )
                print(rows[-1], flush=True)
    text = "\n".join(
        [
            HEADING,
            "",
            "`benchmarks/ingest.py`: events of one file per second, landed in a new database, beside DuckDB's bare",
            "`read_json` with explicit columns into one table of a new database file;",
            f"{os.cpu_count()} cores, medians of {args.repeats} runs in turn. Wanted: a ratio of at least "
            f"{TARGET_RATIO}.",
            "The ratio of processor time suffers less from what else the machine does meanwhile.",
            "",
            "| events | run and source | bare, events/s | landed, events/s | ratio | of processor time |",
            "|---:|---|---:|---:|---:|---:|",
            *rows,
            "",
        ]
    )
    if args.write:
        put_section(text)
    return 0 if worst >= TARGET_RATIO else 1


if __name__ == "__main__":
    raise SystemExit(main())
