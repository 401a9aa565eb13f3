"""A database copied into a new file: DuckDB gives room back to nobody, so only a copy is smaller."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb

from goodput_collector.database import one_row


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """How large the file was, and is."""

    before_bytes: int
    after_bytes: int


def copied(con: duckdb.DuckDBPyConnection, db: Path) -> Path:
    """A copy of the open database `db`, written and on the disk beside it; nobody may write meanwhile.

    Raises duckdb.Error or OSError, and leaves nothing then.
    """
    new = db.with_name(f".{db.name}.compact")
    _remove(new)
    row = one_row(con, "SELECT current_database()")
    assert row is not None
    name = str(row[0]).replace('"', '""')
    place = str(new.absolute()).replace("'", "''")  # ATTACH takes no parameter
    try:
        con.execute(f"ATTACH '{place}' AS goodput_compacted")
        try:
            con.execute(f'COPY FROM DATABASE "{name}" TO goodput_compacted')
            con.execute("CHECKPOINT goodput_compacted")
        finally:
            con.execute("DETACH goodput_compacted")
        _sync(new)
    except BaseException:
        _remove(new)
        raise
    return new


def put_in_place(new: Path, db: Path) -> None:
    """Has a copy take the place of a database that nobody has open, in one step: killed anywhere, there is a whole one.

    Raises OSError, and leaves the database as it was then.
    """
    log = db.with_name(f"{db.name}.wal")
    if log.exists() and log.stat().st_size:
        # What stands in the log is in the copy too; but it must not be read into the copy.
        _remove(new)
        raise OSError(f"{log} is still there: another process has the database open")
    log.unlink(missing_ok=True)
    new.replace(db)
    _sync(db.parent)


def close_all(con: duckdb.DuckDBPyConnection, limit_s: float = 10.0) -> None:
    """Closes a connection with all that were made from it, as soon as none of them is answering.

    Raises duckdb.Error when that takes longer; all are open then.
    """
    until = time.monotonic() + limit_s
    while True:
        try:
            con.close()
            return
        except duckdb.Error:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


def wait_until_closed(db: Path, limit_s: float = 10.0) -> None:
    """Waits until this process has the database open nowhere: who still had it would go on with the old file.

    Raises OSError when that takes longer.
    """
    until = time.monotonic() + limit_s
    while _is_open(db):
        if time.monotonic() > until:
            raise OSError("somebody still reads it")
        time.sleep(0.02)


def _is_open(path: Path) -> bool:
    wanted = path.stat()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            if entry.stat().st_ino == wanted.st_ino and entry.stat().st_dev == wanted.st_dev:
                return True
        except OSError:
            continue  # closed meanwhile
    return False


def _remove(new: Path) -> None:
    new.unlink(missing_ok=True)
    new.with_name(f"{new.name}.wal").unlink(missing_ok=True)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
