"""From the spool to the ledger: what an operator would do by hand with `goodput ingest` and `goodput report`."""

from __future__ import annotations

from pathlib import Path

from goodput_analytics import report as make_report
from goodput_analytics.model import Report
from goodput_collector.database import open_database
from goodput_collector.demo.figures import Interval
from goodput_collector.landing import ingest_files


def recover(spool: Path) -> None:
    """Takes up what dead processes left in memory."""
    from goodput.spool import recover_dead

    recover_dead(spool)


def collect(spool: Path, db: Path) -> None:
    """Loads every event file of the spool."""
    ingest_files(db, sorted(spool.glob("*.jsonl")))


def read_ledger(db: Path, run: str) -> tuple[Report, list[Interval]]:
    """The report of a run, and the intervals that it sums up."""
    con = open_database(db, read_only=True)
    try:
        report = make_report(con, run)
        rows = con.execute("SELECT category, phase, start_ns, end_ns, gpus, step FROM ledger_intervals").fetchall()
    finally:
        con.close()
    names = ("category", "phase", "start_ns", "end_ns", "gpus", "step")
    return report, [Interval(**dict(zip(names, row, strict=True))) for row in rows]
