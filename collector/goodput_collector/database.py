"""The DuckDB file: opened, given its tables, and its faults told in plain words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import duckdb

from goodput_collector.errors import DatabaseError, DatabaseLockedError

MEMORY = ":memory:"
# What stands at byte 8 of every DuckDB file.
_MAGIC, _MAGIC_AT_BYTES = b"DUCK", 8
# How DuckDB names the process that holds a file.
_HOLDER = re.compile(r"\(PID (\d+)\)")


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
        if read_only:
            con.execute("SELECT 1 FROM streams LIMIT 0")
        else:
            con.execute(sql_text("schema"))
        con.execute("SELECT before_end_ns FROM ev_step LIMIT 0")
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


def _check_place(path: Path, read_only: bool) -> None:
    if path.is_dir():
        raise DatabaseError(f"{path} is a directory; name a database file, such as {path / 'goodput.duckdb'}.")
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
    if "lock" in text.lower():
        holder = _HOLDER.search(text)
        which = f" (pid {holder[1]})" if holder else ""
        return DatabaseLockedError(
            f"{name} is in use by another process{which}; stop that process (a collector, perhaps), or ask it instead."
        )
    if "not a valid DuckDB" in text or "magic bytes" in text:
        return DatabaseError(f"{name} is not a DuckDB database; name another file with --db.")
    first = text.splitlines()[0] if text else "unknown fault"
    return DatabaseError(f"{name} cannot be opened ({first}); check its permissions and free space, or load it anew.")


def one_row(con: duckdb.DuckDBPyConnection, query: str, parameters: Sequence[object] = ()) -> tuple[Any, ...] | None:
    """The first row, or None; the result is read to its end, because an open one blocks the connection."""
    rows = con.execute(query, list(parameters)).fetchall()
    return rows[0] if rows else None
