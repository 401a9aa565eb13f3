"""Corrections made to a database that no collector holds; where it has an archive, they are kept there as well."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from goodput_analytics import report
from goodput_analytics.notes import IncidentPlace, incident_place
from goodput_collector import corrections
from goodput_collector.archive import archive_id
from goodput_collector.compacting import Compacted, close_all, copied, put_in_place, wait_until_closed
from goodput_collector.corrections import Act, Correction, Wish
from goodput_collector.database import one_row, open_database, transaction
from goodput_collector.errors import ArchiveError, DatabaseError
from goodput_collector.keeping import Closed, Retention, apply, due, row_count
from goodput_collector.store import Store


class Editor:
    """Makes corrections, and undoes them."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        correct: Callable[[Wish, IncidentPlace | None], Correction],
        undo: Callable[[str, str], Correction],
        compact: Callable[[int | None], tuple[Closed | None, Compacted]],
    ) -> None:
        self._compact = compact
        self._con = con
        self._correct = correct
        self._undo = undo

    def correct(self, wish: Wish) -> Correction:
        """Makes a correction. Raises UnknownRun, or BadRequestError for what makes no sense."""
        checked = wish.checked()
        place = None
        if checked.act is Act.INCIDENT and checked.attempt is not None:
            report(self._con, checked.run)
            place = incident_place(self._con, checked.attempt, checked.abort_ns)
        return self._correct(checked, place)

    def undo(self, id_: str, who: str = "") -> Correction:
        """Undoes one. Raises BadRequestError where there is none."""
        return self._undo(id_, who)

    def compact(self, before_ns: int | None = None) -> tuple[Closed | None, Compacted]:
        """Copies the database into a smaller file, what was told before `before_ns` closed first; nothing else can be
        asked of this editor afterwards. Raises StorageError or DatabaseError."""
        self._con.close()
        return self._compact(before_ns)


@contextmanager
def edited(db: Path, archive: Path, clock_ns: Callable[[], int] = time.time_ns) -> Iterator[Editor]:
    """An editor of the database `db`, whose archive is looked for at `archive`.

    Raises DatabaseError, DatabaseLockedError while a collector holds it, or ArchiveError where a collector's archive is
    not there: what is not kept in it would be lost when the database is made again.
    """
    if not db.exists():
        raise DatabaseError(f"There is no database at {db}; name one with --db, or a collector with --url.")
    if archive.is_dir() and archive_id(archive) is not None:
        store = Store(db, archive)
        try:
            con = store.cursor()
            try:
                yield Editor(
                    con,
                    lambda wish, place: store.correct(wish, place, clock_ns()),
                    lambda id_, who: store.undo(id_, who, clock_ns()),
                    lambda before_ns: (None if before_ns is None else store.retain(before_ns), store.compact()),
                )
            finally:
                con.close()
        finally:
            store.close()
        return
    base = open_database(db)
    try:
        if one_row(base, "SELECT 1 FROM duckdb_tables() WHERE table_name = 'archive_position' AND NOT temporary"):
            raise ArchiveError(
                f"{db} was made by a collector, and its archive is not at {archive}: name it with --archive."
            )
        con = base.cursor()

        def correct(wish: Wish, place: IncidentPlace | None) -> Correction:
            made, known = corrections.plan(base, wish, place, clock_ns())
            if not known:
                with transaction(base):
                    corrections.write(base, made)
            return made

        def undo(id_: str, who: str) -> Correction:
            corrections.find(base, id_)
            with transaction(base):
                corrections.undo(base, id_, clock_ns(), who)
            return corrections.find(base, id_)

        def compact(before_ns: int | None) -> tuple[Closed | None, Compacted]:
            closed = None
            if before_ns is not None:
                rows, runs = row_count(base), 0
                for old in due(base, before_ns):
                    one = Retention(run=old.run, before_ns=before_ns)
                    with transaction(base):
                        runs += apply(base, one) is not None
                closed = Closed(runs=runs, rows=rows - row_count(base))
            before_bytes = db.stat().st_size
            try:
                new = copied(base, db)
                close_all(base)
                wait_until_closed(db)
                put_in_place(new, db)
            except (duckdb.Error, OSError) as error:
                raise DatabaseError(
                    f"{db} could not be compacted ({str(error).splitlines()[0]}); it is as it was."
                ) from error
            return closed, Compacted(before_bytes=before_bytes, after_bytes=db.stat().st_size)

        try:
            yield Editor(con, correct, undo, compact)
        finally:
            con.close()
    finally:
        base.close()
