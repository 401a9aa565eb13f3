"""A database that cannot be used, and files that cannot be read, are told in one plain sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from landing_cases import line, step

from goodput_collector import database
from goodput_collector.database import open_database
from goodput_collector.errors import DatabaseError, DatabaseLockedError, GoodputCollectorError, InputFileError
from goodput_collector.landing import ingest_files

_HOLD = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('held', flush=True); sys.stdin.read()"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "e.jsonl"
    path.write_bytes(line(step(0)) + b"\n")
    return path


def test_a_database_held_by_another_process_is_said_to_be(tmp_path: Path, file: Path) -> None:
    db = tmp_path / "g.duckdb"
    ingest_files(db, [file])
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(db)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdin and holder.stdout
    try:
        assert holder.stdout.readline() == "held\n"
        for read_only in (False, True):
            with pytest.raises(DatabaseLockedError, match=r"in use by another process \(pid \d+\).*--url http://"):
                open_database(db, read_only=read_only)
    finally:
        holder.communicate()
    open_database(db).close()


def test_a_damaged_database_is_said_to_be_damaged_and_not_in_use(tmp_path: Path, file: Path) -> None:
    whole = tmp_path / "whole.duckdb"
    ingest_files(whole, [file])
    content, told = whole.read_bytes(), set()
    for block in range(12288, len(content), 262144):
        damaged = tmp_path / f"at-{block}.duckdb"
        hit = bytes(byte ^ 0xFF for byte in content[block : block + 64])
        damaged.write_bytes(content[:block] + hit + content[block + 64 :])
        try:
            con = open_database(damaged, read_only=True)
            try:
                for (table,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall():
                    con.execute(f"SELECT * FROM {table}").fetchall()
            finally:
                con.close()
        except (DatabaseError, duckdb.Error) as error:
            fault = error if isinstance(error, DatabaseError) else database.storage_fault(str(damaged), error)
            assert type(fault) is DatabaseError and f"{damaged} is damaged; load" in str(fault)
            told.add(block)
    assert told
    assert database.storage_fault("x", ValueError("Corrupt database file")) is None
    assert database.storage_fault("x", duckdb.IOException("something else")) is None


def test_what_is_no_database_of_ours_is_refused(tmp_path: Path, file: Path) -> None:
    text, foreign = tmp_path / "text.txt", tmp_path / "foreign.duckdb"
    text.write_bytes(b"not a database at all " * 1000)
    duckdb.connect(str(foreign)).close()
    # DuckDB would open a file of this name as a table, beside an empty database in memory.
    events, empty = tmp_path / "events.jsonl", tmp_path / "empty.jsonl"
    events.write_bytes(file.read_bytes())
    empty.touch()
    for path, read_only, says in (
        (tmp_path, False, "directory"),
        (tmp_path / "none.duckdb", True, "no database"),
        (Path("http://127.0.0.1:9470"), True, "goodput report RUN --url ADDRESS"),
        (Path("https://collector:9470"), False, "goodput report RUN --url ADDRESS"),
        (tmp_path / "none" / "g.duckdb", False, "folder"),
        (text, False, "not a DuckDB database"),
        (text, True, "not a DuckDB database"),
        (events, False, "not a DuckDB database"),
        (events, True, "not a DuckDB database"),
        (empty, False, "empty file, not a DuckDB database"),
        (empty, True, "empty file, not a DuckDB database"),
        (foreign, True, "without Goodput's tables"),
    ):
        with pytest.raises(DatabaseError, match=says) as told:
            open_database(path, read_only=read_only)
        assert "\n" not in str(told.value)
    assert text.read_bytes() == b"not a database at all " * 1000
    assert events.read_bytes() == file.read_bytes()


@pytest.mark.parametrize("name", ["new.jsonl", "md:x", "new.csv"])
def test_a_new_database_may_have_any_name(
    name: str, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert [ingest_files(name, [file]).new, ingest_files(name, [file]).new] == [1, 0]
    con = open_database(name, read_only=True)
    assert con.execute("SELECT count(*) FROM ev_step").fetchall() == [(1,)]
    con.close()


def test_what_is_no_event_file_is_refused_before_anything_is_loaded(tmp_path: Path, file: Path) -> None:
    db = tmp_path / "g.duckdb"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, says in ((tmp_path / "none.jsonl", "no file"), (tmp_path, "directory"), (pipe, "regular file")):
        with pytest.raises(InputFileError, match=says):
            ingest_files(db, [file, path])
    assert not db.exists()


def test_a_damaged_zipped_file_is_said_to_be(tmp_path: Path) -> None:
    damaged = tmp_path / "e.jsonl.gz"
    damaged.write_bytes(b"\x1f\x8b\x08 not zipped")
    with pytest.raises(InputFileError, match="damaged"):
        ingest_files(tmp_path / "g.duckdb", [damaged])


def test_all_errors_have_one_base() -> None:
    assert issubclass(InputFileError, GoodputCollectorError)
    assert issubclass(DatabaseLockedError, DatabaseError)
    assert issubclass(DatabaseError, GoodputCollectorError)


def test_an_ingest_that_fails_midway_leaves_nothing_of_its_batch(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from goodput_collector.intake import Intake

    db = tmp_path / "g.duckdb"

    def fail(*_: object) -> None:
        raise RuntimeError("midway")

    with monkeypatch.context() as patch:
        patch.setattr(Intake, "_keep_rejected", fail)
        with pytest.raises(RuntimeError):
            ingest_files(db, [file])
    con = open_database(db, read_only=True)
    assert con.execute("SELECT (SELECT count(*) FROM ev_step), (SELECT count(*) FROM streams)").fetchall() == [(0, 0)]
    con.close()
    assert ingest_files(db, [file]).new == 1


def versions(db: Path) -> list[int]:
    con = duckdb.connect(str(db))
    try:
        return [row[0] for row in con.execute("SELECT version FROM schema_versions ORDER BY version").fetchall()]
    finally:
        con.close()


def test_a_database_of_a_later_version_is_refused(tmp_path: Path, file: Path) -> None:
    db = tmp_path / "g.duckdb"
    ingest_files(db, [file])
    assert versions(db) == [database.SCHEMA_VERSION]
    con = duckdb.connect(str(db))
    con.execute("INSERT INTO schema_versions VALUES (99, 0)")
    con.close()
    for read_only in (False, True):
        with pytest.raises(DatabaseError, match=r"later version of Goodput .*99"):
            open_database(db, read_only=read_only)


def test_migrations_run_once_in_order_and_each_with_its_record(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = tmp_path / "g.duckdb"
    ingest_files(db, [file])
    first = database.SCHEMA_VERSION
    steps = {
        "one": "CREATE TABLE made (n INTEGER); INSERT INTO made VALUES (1)",
        "two": "INSERT INTO made VALUES (2); SELECT error('no room')",
    }
    real = database.sql_text
    monkeypatch.setattr(database, "sql_text", lambda name: steps[name] if name in steps else real(name))
    monkeypatch.setattr(database, "MIGRATIONS", {first: "one", first + 1: "two"})
    monkeypatch.setattr(database, "SCHEMA_VERSION", first + 2)
    with pytest.raises(DatabaseError, match="no room"):
        open_database(db)
    assert versions(db) == [first, first + 1]
    steps["two"] = "INSERT INTO made VALUES (2)"
    for _ in range(2):
        con = open_database(db)
        assert con.execute("SELECT n FROM made ORDER BY n").fetchall() == [(1,), (2,)]
        con.close()
    assert versions(db) == [first, first + 1, first + 2]


def test_what_landed_under_version_1_gets_its_blocks_counted(tmp_path: Path, file: Path) -> None:
    db = tmp_path / "g.duckdb"
    ingest_files(db, [file])
    con = duckdb.connect(str(db))
    kept = con.execute("FROM step_blocks ORDER BY ALL").fetchall()
    assert kept
    con.execute("DROP TABLE step_blocks; DELETE FROM schema_versions; INSERT INTO schema_versions VALUES (1, 0)")
    con.close()
    with pytest.raises(DatabaseError, match="earlier version"):
        open_database(db, read_only=True)
    open_database(db).close()
    con = open_database(db, read_only=True)
    assert con.execute("FROM step_blocks ORDER BY ALL").fetchall() == kept
    con.close()
    assert versions(db) == list(range(1, database.SCHEMA_VERSION + 1))
