"""Events from files into the database: each once, each slice in one transaction with its stream's new offset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

import duckdb

from goodput_collector.database import open_database
from goodput_collector.errors import GoodputCollectorError
from goodput_collector.intake import Intake, Part
from goodput_collector.redaction import USUAL, Redaction
from goodput_collector.streams import SLICE_BYTES, StreamReader, check_readable

Progress = Callable[[int, int], None]

# Small files share a transaction: each costs a few milliseconds, however little it brings.
_SHARED_FILES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSummary:
    """What one file brought: every event read is `new`, a duplicate or a conflict."""

    path: str
    events: int
    new: int
    duplicates: int
    conflicts: int
    rejected: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestSummary:
    """What an ingest brought, in all and file by file.

    `events` = `new` + `duplicates` (the same event again) + `conflicts` (the same source and sequence number again
    with another content: the smaller in byte order is kept). `rejected` counts lines and pieces of lines by reason;
    an unfinished last line is among them, as `torn`, until its file goes on. `runs` are those that the files hold
    events of, new or not.
    """

    events: int
    new: int
    duplicates: int
    conflicts: int
    rejected: dict[str, int]
    runs: tuple[str, ...]
    files: tuple[FileSummary, ...]


@dataclass(slots=True)
class _Tally:
    """The counts of one file while it is read."""

    events: int = 0
    duplicates: int = 0
    conflicts: int = 0
    rejected: Counter[str] = field(default_factory=Counter)


def ingest_files(
    db_path: str | PathLike[str],
    files: Sequence[str | PathLike[str]],
    progress: Progress | None = None,
    redaction: Redaction = USUAL,
) -> IngestSummary:
    """Loads event files (JSON Lines, also `.gz`) into the database at `db_path`, which is created if there is none.

    What was loaded before is not loaded again. `progress` is called with bytes done and bytes in all; `redaction` blots
    secrets out. Raises
    GoodputCollectorError, before anything is loaded, where a file or the database cannot be used.
    """
    paths = [Path(name) for name in files]
    for path in paths:
        check_readable(path)
    con = open_database(db_path)
    try:
        return Landing(con, redaction=redaction).take(paths, progress)
    except duckdb.IOException as error:
        raise GoodputCollectorError(
            f"The database {db_path} could not be written ({str(error).splitlines()[0]}); make room and load again."
        ) from error
    finally:
        con.close()


class Landing:
    """Loads files through one open connection, which nobody else may use meanwhile."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        *,
        slice_bytes: int = SLICE_BYTES,
        fast: bool = True,
        redaction: Redaction = USUAL,
    ) -> None:
        self._con = con
        self._slice_bytes = slice_bytes
        self._redaction = redaction
        self._intake = Intake(con, fast=fast, redaction=redaction)

    def take(self, paths: Sequence[Path], progress: Progress | None = None) -> IngestSummary:
        """Loads the files in order; the summary has one entry for each path."""
        tallies = [_Tally() for _ in paths]
        total_bytes = sum(path.stat().st_size for path in paths)
        done_bytes = 0
        for group in self._groups(paths):
            parts = [part for _, part in group]
            for (index, _), outcome in zip(group, self._intake.take(parts), strict=True):
                tally = tallies[index]
                tally.events += outcome.events
                tally.duplicates += outcome.duplicates
                tally.conflicts += outcome.conflicts
                tally.rejected.update(outcome.rejected)
            if progress is not None:
                done_bytes += sum(len(part.slice.data) for part in parts)
                progress(min(done_bytes, total_bytes), total_bytes)
        if progress is not None:
            progress(total_bytes, total_bytes)
        return _summary(paths, tallies, self._runs(paths))

    def _runs(self, paths: Sequence[Path]) -> tuple[str, ...]:
        """The runs that these files brought events of, now or before, as they are called."""
        found = self._con.execute(
            "SELECT DISTINCT run FROM stream_runs JOIN streams USING (stream_id) JOIN shown_runs USING (run_id) "
            "WHERE NOT hidden AND name IN (SELECT unnest(?)) ORDER BY run",
            [[str(path.resolve()) for path in paths]],
        ).fetchall()
        return tuple(run for (run,) in found)

    def _groups(self, paths: Sequence[Path]) -> Iterator[list[tuple[int, Part]]]:
        """Slices of one file after another, put together up to about `slice_bytes`; of one stream never two."""
        group: list[tuple[int, Part]] = []
        names: set[str] = set()
        held_bytes = 0
        for index, path in enumerate(paths):
            name = str(path.resolve())
            if name in names:
                yield group
                group, names, held_bytes = [], set(), 0
            for part in self._parts(name, path):
                if group and (name in names or held_bytes + len(part.slice.data) > self._slice_bytes):
                    yield group
                    group, names, held_bytes = [], set(), 0
                group.append((index, part))
                names.add(name)
                held_bytes += len(part.slice.data)
            if len(group) >= _SHARED_FILES:
                yield group
                group, names, held_bytes = [], set(), 0
        if group:
            yield group

    def _parts(self, name: str, path: Path) -> Iterator[Part]:
        known = self._intake.stream(name)
        with StreamReader(path, known.offset_bytes, known.fingerprint) as reader:
            first = True
            for one in reader.slices(self._slice_bytes):
                told = one._replace(data=self._redaction.lines(one.data))
                yield Part(name=name, slice=told, begins=first and not reader.resumed)
                first = False


def _summary(paths: Sequence[Path], tallies: Sequence[_Tally], runs: tuple[str, ...]) -> IngestSummary:
    files = tuple(
        FileSummary(
            path=str(path),
            events=tally.events,
            new=tally.events - tally.duplicates - tally.conflicts,
            duplicates=tally.duplicates,
            conflicts=tally.conflicts,
            rejected=dict(sorted(tally.rejected.items())),
        )
        for path, tally in zip(paths, tallies, strict=True)
    )
    rejected: Counter[str] = Counter()
    for tally in tallies:
        rejected.update(tally.rejected)
    return IngestSummary(
        events=sum(file.events for file in files),
        new=sum(file.new for file in files),
        duplicates=sum(file.duplicates for file in files),
        conflicts=sum(file.conflicts for file in files),
        rejected=dict(sorted(rejected.items())),
        runs=runs,
        files=files,
    )
