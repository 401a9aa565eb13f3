"""The database made again from the archive alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb

from goodput_collector.archive import archive_id, read_groups
from goodput_collector.database import one_row, open_database
from goodput_collector.errors import ArchiveError, DatabaseError
from goodput_collector.lander import Lander, Replay
from goodput_collector.redaction import USUAL, Redaction


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildSummary:
    """What the archive held: events landed, streams, and bytes that could not be read."""

    events: int
    streams: int
    damaged_bytes: int


def rebuild(archive: Path, db: Path, redaction: Redaction = USUAL) -> RebuildSummary:
    """Makes the database `db`, which must not exist, from the archive: the same as the collector's own.

    It may be done while a collector writes to the archive. `redaction`: that collector's, for the beginnings of
    rejected lines; what else there was to blot out is so in the archive. What is damaged in the archive is passed
    over, and counted.
    Raises ArchiveError or DatabaseError; no database is left then.
    """
    if not archive.is_dir():
        raise ArchiveError(f"There is no archive {archive}; name the folder that `goodput collect --archive` wrote.")
    known = archive_id(archive)
    if known is None:
        raise ArchiveError(f"{archive} holds no archive; name the folder that `goodput collect --archive` wrote.")
    if db.exists():
        raise DatabaseError(f"{db} exists; name a new file, or move that one away first.")
    making = db.with_name(f".{db.name}.rebuild")
    making.unlink(missing_ok=True)
    try:
        con = open_database(making)
        try:
            lander = Lander(con, known, redaction)
            replay = Replay(lander.land)
            damaged = 0
            for group in read_groups(archive):
                replay.add(group.records, group.end)
                damaged += group.damaged_bytes
            replay.flush()
            row = one_row(con, "SELECT count(*) FROM streams")
        finally:
            con.close()
        making.replace(db)
    except duckdb.Error as error:
        raise DatabaseError(
            f"{db} could not be written ({str(error).splitlines()[0]}); make room and try again."
        ) from error
    finally:
        making.unlink(missing_ok=True)
        making.with_name(f"{making.name}.wal").unlink(missing_ok=True)
    return RebuildSummary(events=lander.counts.events, streams=row[0] if row else 0, damaged_bytes=damaged)
