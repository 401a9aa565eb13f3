"""What the collector keeps: the archive, the database, and for every stream how far it was taken.

A group of chunks is appended to the archive, and landed in the database: in one transaction with the streams' offsets
and the archive's position, committed only when the archive has all of it. Killed in between, the database is behind the
archive, never the other way round, and catches up when it is opened.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb

from goodput_analytics.notes import IncidentPlace
from goodput_collector import control, early, requests
from goodput_collector.archive import Archive, Position, Record
from goodput_collector.chunks import Answer, Chunk
from goodput_collector.compacting import Compacted, close_all, copied, put_in_place, wait_until_closed
from goodput_collector.corrections import Correction, Wish, as_json, find, plan
from goodput_collector.database import one_row, open_database
from goodput_collector.errors import ArchiveError, DatabaseError, DatabaseLockedError, StorageError
from goodput_collector.keeping import Closed, Retention, due, row_count
from goodput_collector.lander import Lander, Replay
from goodput_collector.lines import HEAD_BYTES, MAX_LINE_BYTES
from goodput_collector.redaction import NOTHING, USUAL, Redaction

_MUCH_BYTES = 2**20
"""Of so much the archiving is worth a thread of its own."""


def admit(known_bytes: int, chunk: Chunk, redaction: Redaction = NOTHING) -> Record | None:
    """What of a chunk is kept, for a stream that stands at `known_bytes`: its whole lines. None: nothing.

    Secrets in it are blotted out. A line that is too long to be held is left out, but for its head, so that the stream
    can go on.
    """
    name, offset, data, final = chunk
    if offset != known_bytes:
        return None
    size = len(data) if final else data.rfind(b"\n") + 1
    if size:
        return Record(name, offset, offset + size, redaction.lines(data[:size]))
    if len(data) > MAX_LINE_BYTES:
        head = redaction.line(data[:HEAD_BYTES])
        return Record(name, offset, offset + len(data), head, skipped=True)
    return None


class Store:
    """The archive and the database of one collector. One thread uses it; `cursor` is for others.

    Attributes:
        archive: the stream archive.
        lander: what lands its records in the database.
        healthy: the database has all that the archive has.
        writing: held by who writes beside the thread that lands, and while the file is changed for another.
        before_reopen: called before the database is opened anew after a failure, which must find no connection left.
    """

    def __init__(self, db_path: Path, archive_path: Path, redaction: Redaction = USUAL) -> None:
        """Opens both, made where there are none, and lands what the database lacks. `redaction`: of what is kept.

        Raises DatabaseError, DatabaseLockedError or ArchiveError, with what to do.
        """
        self.healthy = False
        self.before_reopen: Callable[[], None] = lambda: None
        self.writing = threading.RLock()
        self._vain: dict[str, tuple[int, int, int]] = {}
        self._db_path = db_path
        self._redaction = redaction
        try:
            self._base = open_database(db_path)
        except DatabaseLockedError:
            raise
        except DatabaseError as error:
            if not archive_path.is_dir():
                raise
            raise DatabaseError(
                f"{error} The archive has all of it: move the file away, then "
                f"`goodput rebuild --archive {archive_path} --db {db_path}`."
            ) from error
        try:
            self.archive = Archive(archive_path)
            try:
                self.lander = Lander(self._base.cursor(), self.archive.id, redaction)
                self._catch_up()
            except BaseException:
                self.archive.close()
                raise
        except duckdb.Error as error:
            self._base.close()
            raise DatabaseError(
                f"The database {db_path} cannot be used ({_first_line(error)}); make room on its disk, or move it "
                f"away and make it again: `goodput rebuild --archive {archive_path} --db {db_path}`."
            ) from error
        except BaseException:
            self._base.close()
            raise

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection of its own to the database, for a thread that reads. Raises duckdb.Error."""
        return self._base.cursor()

    def offsets(self, names: Sequence[str]) -> list[int]:
        """Where each stream stands."""
        return self.lander.offsets(names)

    def read_offset(self, name: str) -> int:
        """Where a stream stands, for any thread. Raises duckdb.Error."""
        cursor = self.cursor()
        try:
            row = one_row(cursor, "SELECT offset_bytes FROM streams WHERE name = ?", [name])
            return 0 if row is None else int(row[0])
        finally:
            cursor.close()

    def take(self, chunks: Sequence[Chunk]) -> list[Answer]:
        """Keeps the chunks, at most one of each stream, for good; the answers are in their order.

        Raises StorageError when a disk refused: nothing is answered then, and whatever was kept will be said by the
        next answer.
        """
        if not self.healthy:
            self.heal()
        known = self.offsets([chunk.stream for chunk in chunks])
        records = [admit(at, chunk, self._redaction) for at, chunk in zip(known, chunks, strict=True)]
        kept = [record for record in records if record is not None]
        if kept:
            self._keep(kept)
        return [
            Answer(at if record is None else record.end_bytes, chunk.offset_bytes == at)
            for at, record, chunk in zip(known, records, chunks, strict=True)
        ]

    def correct(self, wish: Wish, place: IncidentPlace | None, at_ns: int) -> Correction:
        """Makes a correction for good; what was made before is not made again. `place`: of the incident.

        Raises UnknownRun, BadRequestError, or StorageError as `take` does.
        """
        if not self.healthy:
            self.heal()
        with self._reading() as con:
            made, known = plan(con, wish.checked(), place, at_ns)
        if not known:
            self._keep([control.record({"correct": as_json(made)})])
        return made

    def undo(self, id_: str, who: str, at_ns: int) -> Correction:
        """Undoes a correction for good. Raises BadRequestError (404) where there is none, or StorageError."""
        if not self.healthy:
            self.heal()
        with self._reading() as con:
            before = find(con, id_)
        if before.undone_ns is None:
            self._keep([control.record({"undo": {"id": id_, "at_ns": at_ns, "who": who}})])
        with self._reading() as con:
            return find(con, id_)

    def retain(self, before_ns: int) -> Closed:
        """Has what all runs told before that moment closed where it can be, for good. Raises StorageError."""
        if not self.healthy:
            self.heal()
        with self._reading() as con:
            wanted, rows = due(con, before_ns), row_count(con)
        runs = 0
        for old in wanted:
            # A run whose old blocks could not be closed is looked at again when it has told more, or more of it is old.
            told = sum(self.lander.versions.get(part, 0) for part in old.parts)
            state = (old.blocks, told, self.lander.corrected - runs)
            if self._vain.get(old.run) == state:
                continue
            one = Retention(run=old.run, before_ns=before_ns)
            if self._close_old(one):
                runs += 1
            else:
                self._vain[old.run] = state
        with self._reading() as con:
            return Closed(runs=runs, rows=rows - row_count(con))

    def asked(self) -> list[requests.Asked]:
        """The checkpoints that were asked for, also those whose time is over. Raises duckdb.Error."""
        with self._reading() as con:
            return requests.read(con)

    def keep_asked(self, asked: requests.Asked, now_ns: int) -> None:
        """Writes down that a checkpoint was asked for, in the database alone: it is no event. Raises StorageError."""
        if not self.healthy:
            self.heal()
        try:
            with self._reading() as con:
                requests.write(con, asked, now_ns)
        except duckdb.Error as error:
            self.healthy = False
            raise StorageError(f"The database could not be written ({_first_line(error)}).") from error

    def keep_early(self, one: early.Found) -> None:
        """Keeps complete blocks of steps reduced, where the database is well; nothing depends on it."""
        if not self.healthy:
            return
        with self._reading() as con, suppress(duckdb.Error):
            early.keep(con, one)

    def compact(self) -> Compacted:
        """Copies the database into a new file, without the room that nobody uses any more, and puts that in its place.

        Reading goes on meanwhile, but for the moment of the change. Raises StorageError, and then all is as it was.
        """
        if not self.healthy:
            self.heal()
        with self.writing:
            try:
                before_bytes = self._db_path.stat().st_size
                new = copied(self._base, self._db_path)
                self.before_reopen()
                close_all(self._base)
                try:
                    wait_until_closed(self._db_path)
                    put_in_place(new, self._db_path)
                finally:
                    self._base = open_database(self._db_path)
                    self.lander.attach(self._base.cursor(), self.archive.id)
                return Compacted(before_bytes=before_bytes, after_bytes=self._db_path.stat().st_size)
            except (duckdb.Error, DatabaseError, OSError) as error:
                self.healthy = False
                raise StorageError(f"The database could not be compacted ({_first_line(error)}).") from error

    def _keep(self, records: Sequence[Record]) -> None:
        """Has a group in the archive and in the database. Raises StorageError.

        While much is being written to the archive its events are made ready for the database, which takes none of them
        before the archive has them all.
        """
        self.healthy = False
        archived = self._begin_to_archive(records)
        try:
            self.lander.land(records, archived.result)
        except (OSError, duckdb.Error) as error:
            refused = archived.exception()
            if isinstance(refused, OSError):
                # Neither has them.
                self.healthy = True
                raise StorageError(f"The archive could not be written ({refused.strerror or refused}).") from refused
            raise StorageError(f"The database could not be written ({_first_line(error)}).") from error
        finally:
            wait([archived])
        self.healthy = True

    def _begin_to_archive(self, records: Sequence[Record]) -> Future[Position]:
        """Where the archive ends when it has the records; it fails with OSError."""
        done: Future[Position] = Future()

        def work() -> None:
            try:
                done.set_result(self.archive.append(records))
            except BaseException as error:
                done.set_exception(error)

        if sum([len(record.data) for record in records]) < _MUCH_BYTES:
            work()
        else:
            # Its own thread, which no end of the process waits for: a disk may be frozen.
            threading.Thread(target=work, name="goodput-archive", daemon=True).start()
        return done

    def _close_old(self, one: Retention) -> bool:
        """Has what can be closed of a run closed, for good; False: nothing can. Raises StorageError."""
        self.healthy = False
        try:
            done = self.lander.close_old(one, lambda record: self.archive.append([record]))
        except OSError as error:
            self.healthy = True
            raise StorageError(f"The archive could not be written ({error.strerror or error}).") from error
        except duckdb.Error as error:
            raise StorageError(f"The database could not be written ({_first_line(error)}).") from error
        self.healthy = True
        return done

    @contextmanager
    def _reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        cursor = self.cursor()
        try:
            yield cursor
        finally:
            cursor.close()

    def heal(self) -> None:
        """Lands what the database lacks, after a failure. Raises StorageError while it cannot be done."""
        try:
            self.lander.attach(self._base.cursor(), self.archive.id)
            self._catch_up()
        except duckdb.Error as error:
            try:
                # After some failures DuckDB refuses all work until the file is opened anew.
                self.before_reopen()
                self.lander.close()
                self._base.close()
                self._base = open_database(self._db_path)
                self.lander.attach(self._base.cursor(), self.archive.id)
                self._catch_up()
            except (duckdb.Error, DatabaseError):
                raise StorageError(f"The database could not be written ({_first_line(error)}).") from error

    def close(self) -> None:
        """Closes both."""
        self._base.close()
        self.archive.close()

    def _catch_up(self) -> None:
        """Lands all groups that the archive has and the database has not."""
        position = self.lander.position()
        if position > self.archive.end:
            raise ArchiveError(
                f"The archive ends before what {self._db_path} has taken from it: put the whole archive back, or name "
                "a new archive folder and a new database file."
            )
        replay = Replay(self.lander.land)
        for group in self.archive.groups(position):
            replay.add(group.records, group.end)
        replay.flush()
        self.healthy = True


def _first_line(error: Exception) -> str:
    text = str(error)
    return text.splitlines()[0] if text else type(error).__name__
