"""The DuckDB file: opened, given its tables, and its faults told in plain words."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import duckdb

from goodput_collector.errors import DatabaseError, DatabaseLockedError

MEMORY = ":memory:"
SCHEMA_VERSION = 5
"""The version of the tables. It grows with every change that an older reader or writer would not understand."""
MIGRATIONS: dict[int, str] = {1: "from_version_1", 2: "from_version_2", 3: "from_version_3", 4: "from_version_4"}
"""For every earlier version the file in `sql/` that makes the next one of it."""
# What stands at byte 8 of every DuckDB file.
_MAGIC, _MAGIC_AT_BYTES = b"DUCK", 8
# How DuckDB names the process that holds a file.
_HOLDER = re.compile(r"\(PID (\d+)\)")
# A word of its own: a damaged "block" is no lock.
_LOCK = re.compile(r"\block\b", re.IGNORECASE)


@cache
def sql_text(name: str) -> str:
    """The text of `sql/NAME.sql` of this package."""
    return files("goodput_collector").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")


def open_database(path: str | PathLike[str], read_only: bool = False) -> duckdb.DuckDBPyConnection:
    """A connection to the database at `path`; created, with its tables, unless `read_only`.

    Raises DatabaseLockedError when another process holds the file, DatabaseError when it is missing, a directory,
    or not a database of ours.
    """
    name = fspath(path)
    if name != MEMORY:
        _check_place(Path(name), read_only)
    try:
        # In full, because "md:x" or "pg:x" would be taken for a kind of database instead of a file's name.
        con = duckdb.connect(name if name == MEMORY else str(Path(name).absolute()), read_only=read_only)
    except duckdb.Error as error:
        raise _told(name, error) from error
    try:
        _refuse_later(con, name)
        if read_only:
            con.execute("SELECT 1 FROM streams LIMIT 0")
        else:
            con.execute(sql_text("schema"))
            migrate(con)
        con.execute("SELECT before_end_ns FROM ev_step LIMIT 0")
        _refuse_earlier(con, name)
    except DatabaseError:
        con.close()
        raise
    except duckdb.CatalogException as error:
        con.close()
        raise DatabaseError(
            f"{name} is a DuckDB file without Goodput's tables; name the file that `goodput ingest --db` wrote."
        ) from error
    except duckdb.BinderException as error:
        con.close()
        raise DatabaseError(
            f"{name} was written by an earlier version of Goodput; load the event files into a new one."
        ) from error
    except duckdb.Error as error:
        con.close()
        raise _told(name, error) from error
    return con


def schema_version(con: duckdb.DuckDBPyConnection) -> int | None:
    """The version of the tables in the database; None where it is not written down, as in one that is still empty."""
    if not one_row(con, "SELECT 1 FROM duckdb_tables() WHERE table_name = 'schema_versions' AND NOT temporary"):
        return None
    row = one_row(con, "SELECT max(version) FROM schema_versions")
    return None if row is None else row[0]


def migrate(con: duckdb.DuckDBPyConnection) -> None:
    """Brings tables of an earlier version up to this one: each step in one transaction with its record."""
    con.execute("CREATE TABLE IF NOT EXISTS schema_versions (version INTEGER NOT NULL, at_ns BIGINT NOT NULL)")
    version = schema_version(con)
    if version is None:
        # A file without a version is new, unless something landed before versions were written down.
        version = 1 if one_row(con, "SELECT 1 FROM ev_step LIMIT 1") else SCHEMA_VERSION
        con.execute("INSERT INTO schema_versions VALUES (?, ?)", [version, time.time_ns()])
    for step in range(version, SCHEMA_VERSION):
        with transaction(con):
            con.execute(sql_text(MIGRATIONS[step]))
            con.execute("INSERT INTO schema_versions VALUES (?, ?)", [step + 1, time.time_ns()])


def _refuse_later(con: duckdb.DuckDBPyConnection, name: str) -> None:
    version = schema_version(con)
    if version is not None and version > SCHEMA_VERSION:
        raise DatabaseError(
            f"{name} was written by a later version of Goodput (its tables are version {version}, this one knows "
            f"{SCHEMA_VERSION}); use that version, or rebuild from the archive into another file."
        )


def _refuse_earlier(con: duckdb.DuckDBPyConnection, name: str) -> None:
    version = schema_version(con)
    if version is None or version < SCHEMA_VERSION:
        raise DatabaseError(
            f"{name} was written by an earlier version of Goodput and is only read here; bring it up to date with "
            f"`goodput ingest --db {name}` and a file of its events, or by starting the collector on it once."
        )


def _check_place(path: Path, read_only: bool) -> None:
    if path.is_dir():
        raise DatabaseError(f"{path} is a directory; name a database file, such as {path / 'goodput.duckdb'}.")
    if str(path).startswith(("http:/", "https:/")):
        raise DatabaseError(
            "--db takes a database file, not a collector's address; ask a collector with "
            "`goodput report RUN --url ADDRESS` (docs/COLLECTOR.md)."
        )
    if read_only and not path.exists():
        raise DatabaseError(
            f"There is no database at {path}; load events into it with `goodput ingest FILE --db {path}`."
        )
    if not read_only and not path.parent.is_dir():
        raise DatabaseError(
            f"The folder {path.parent} does not exist; create it or name another place for the database."
        )
    _check_content(path)


def _check_content(path: Path) -> None:
    """Refuses what is no DuckDB file: for a name such as `x.jsonl` DuckDB would open it as a table in memory."""
    try:
        with path.open("rb") as file:
            head = file.read(_MAGIC_AT_BYTES + len(_MAGIC))
    except OSError:
        return  # there is none yet, or DuckDB tells why it cannot be opened
    if not head:
        raise DatabaseError(f"{path} is an empty file, not a DuckDB database; remove it or name another file.")
    if head[_MAGIC_AT_BYTES:] != _MAGIC:
        raise DatabaseError(f"{path} is not a DuckDB database; name another file with --db.")


def _told(name: str, error: duckdb.Error) -> DatabaseError:
    text = str(error)
    fault = storage_fault(name, error)
    if fault is not None:
        return fault
    if _LOCK.search(text):
        holder = _HOLDER.search(text)
        which = f" (pid {holder[1]})" if holder else ""
        return DatabaseLockedError(
            f"{name} is in use by another process{which}; stop that process, or, if it is a collector, ask it: "
            "`goodput report RUN --url http://127.0.0.1:9470`, at the address that it listens on (docs/COLLECTOR.md)."
        )
    if "not a valid DuckDB" in text or "magic bytes" in text:
        return DatabaseError(f"{name} is not a DuckDB database; name another file with --db.")
    first = text.splitlines()[0] if text else "unknown fault"
    return DatabaseError(f"{name} cannot be opened ({first}); check its permissions and free space, or load it anew.")


def storage_fault(name: str, error: BaseException) -> DatabaseError | None:
    """What is wrong with the disk or the content of a database file; None where an error speaks of something else."""
    if not isinstance(error, duckdb.Error):
        return None
    text = str(error)
    if "No space left on device" in text:
        return DatabaseError(
            f"There is no space left on the disk of {name}; make room, and run the command again: it goes on from what "
            "is kept."
        )
    if "Corrupt database file" in text:
        return DatabaseError(
            f"{name} is damaged; load the event files into a new one, or make it again from a collector's archive: "
            "`goodput rebuild`."
        )
    return None


@contextmanager
def transaction(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """All that is done inside, or nothing of it."""
    con.execute("BEGIN")
    try:
        yield
        con.execute("COMMIT")
    except BaseException:
        con.execute("ROLLBACK")
        raise


def one_row(con: duckdb.DuckDBPyConnection, query: str, parameters: Sequence[object] = ()) -> tuple[Any, ...] | None:
    """The first row, or None; the result is read to its end, because an open one blocks the connection."""
    rows = con.execute(query, list(parameters)).fetchall()
    return rows[0] if rows else None
