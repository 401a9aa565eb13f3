"""Rejected lines are bounded in the table and counted beyond it, in whatever batches they come."""

import re
from pathlib import Path

import duckdb
import pytest
from landing_cases import line, step

from goodput_analytics import report
from goodput_collector import intake
from goodput_collector.database import open_database
from goodput_collector.landing import Landing, ingest_files
from goodput_collector.metrics_marks import landed

LINES = 350


def content(bad: int) -> bytes:
    """One good line, then bad ones: every second is no JSON, the others are of no known kind."""
    rest = [b'{"kind":"odd%d"}' % number if number % 2 else b"x%d" % number for number in range(bad)]
    return b"\n".join([line(step(0)), *rest]) + b"\n"


def told(con: duckdb.DuckDBPyConnection) -> dict[str, list[tuple[object, ...]]]:
    """What a database says of what it rejected, with the order that the table has."""
    kept = con.execute("SELECT offset_bytes, reason, head FROM rejected ORDER BY reason, offset_bytes").fetchall()
    return {"kept": kept, "more": con.execute("SELECT reason, lines FROM rejected_more ORDER BY reason").fetchall()}


@pytest.mark.parametrize("slice_bytes", [1000, 2**20])
def test_the_first_of_each_reason_are_kept_and_all_are_counted(tmp_path: Path, slice_bytes: int) -> None:
    data = content(LINES)
    file = tmp_path / "e.jsonl"
    file.write_bytes(data)
    con = open_database(":memory:")
    summary = Landing(con, slice_bytes=slice_bytes).take([file])
    assert summary.rejected == {"not_json": LINES // 2, "unknown_kind": LINES // 2}
    found = told(con)
    assert len(found["kept"]) == 2 * intake.REJECTED_EACH
    assert found["more"] == [(why, LINES // 2 - intake.REJECTED_EACH) for why in ("not_json", "unknown_kind")]
    # The first ones, not just any.
    heads = [head for _, why, head in found["kept"] if why == "not_json"]
    assert heads == [b"x%d" % number for number in range(0, 2 * intake.REJECTED_EACH, 2)]
    assert report(con, "r").quality.rejected == summary.rejected
    assert landed(con).rejected == summary.rejected
    con.close()


def test_there_is_a_bound_over_all_streams_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "REJECTED_ALL", 30)
    files = []
    for number in range(5):
        files.append(tmp_path / f"{number}.jsonl")
        files[-1].write_bytes(content(20) + b'{"kind":"unfini')
    db = tmp_path / "g.duckdb"
    ingest_files(db, files)
    con = open_database(db, read_only=True)
    kept = con.execute("SELECT count(*) FROM rejected WHERE NOT pending").fetchall()
    counted = con.execute("SELECT sum(lines) FROM rejected_more").fetchall()
    # An unfinished line is no part of what is bounded: it goes when its file goes on.
    assert con.execute("SELECT count(*) FROM rejected WHERE pending").fetchall() == [(5,)]
    assert kept[0][0] <= 30 and kept[0][0] + counted[0][0] == 100
    con.close()


def test_what_was_rejected_under_version_2_is_brought_within_the_bound(tmp_path: Path) -> None:
    file, db = tmp_path / "e.jsonl", tmp_path / "g.duckdb"
    file.write_bytes(content(LINES))
    ingest_files(db, [file])
    con = duckdb.connect(str(db))
    bounded = told(con)
    con.execute("DELETE FROM rejected_more; DELETE FROM rejected; DELETE FROM schema_versions WHERE version > 2")
    con.execute("INSERT INTO schema_versions VALUES (2, 0)")
    bad = list(re.finditer(rb"[^\n]+", content(LINES)))[1:]
    rows = [[one.start(), "unknown_kind" if one.group().startswith(b"{") else "not_json", one.group()] for one in bad]
    con.executemany("INSERT INTO rejected SELECT 1, ?, ?, ?, false", rows)
    con.close()
    open_database(db).close()
    con = open_database(db, read_only=True)
    assert told(con) == bounded
    con.close()
