"""The stream archive: all bytes that were ever taken, in the order in which they were taken, in append-only files.

A folder of files `NNNNNN.archive`. Each begins with one line of JSON that names the archive; then come *frames*, one
for each group of records that became durable together:

    frame    magic `GPF1`, CRC-32 of all that follows, length of the records, length as stored, the records (zstd)
    record   length of the stream's name, flags, length of the data, offset, end, the name, the data

A frame counts only when its CRC is right, so a write that a kill or a full disk cut short leaves nothing behind: the
next one to open the archive removes it. Nobody was told that it was kept.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct
import uuid
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from goodput_collector.errors import ArchiveError

FILE_MAX_BYTES = 256 * 2**20
FRAME_MAX_BYTES = 256 * 2**20
SKIPPED = 1
"""Flag of a record whose data is only the head of a line too long to be kept."""

_NAME = re.compile(r"(\d{6,})\.archive")
_MAGIC = b"GPF1"
_FRAME = struct.Struct("<4sIII")
_RECORD = struct.Struct("<HHIQQ")
_CODEC = "zstd"


class Record(NamedTuple):
    """Bytes of the stream `name` that lie at `offset_bytes`; the stream goes on at `end_bytes`.

    `skipped`: the data is the head of what stood there and was left out.
    """

    name: str
    offset_bytes: int
    end_bytes: int
    data: bytes
    skipped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Position:
    """A place between two frames: the number of the file, and the byte in it."""

    file: int = 0
    byte: int = 0


START = Position()
"""Before the first group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The records of one frame, and the position after it. `damaged_bytes`: what before it could not be read."""

    records: tuple[Record, ...]
    end: Position
    damaged_bytes: int = 0


class Archive:
    """The archive in a folder, open for writing by this process alone.

    Attributes:
        id: tells this archive from every other.
        end: where the next group will stand.
    """

    def __init__(self, directory: Path, *, file_max_bytes: int = FILE_MAX_BYTES) -> None:
        """Opens the archive, made when there is none. Raises ArchiveError when another process has it open."""
        self._directory = directory
        self._file_max_bytes = file_max_bytes
        self._fd = -1
        self._lock_fd = -1
        try:
            directory.mkdir(mode=0o700, exist_ok=True)
            self._lock_fd = _locked(directory)
            numbers = _numbers(directory)
            self.id = archive_id(directory) or uuid.uuid4().hex
            self.end = Position(file=numbers[-1] if numbers else 0)
            self._open_last()
        except OSError as error:
            self.close()
            raise ArchiveError(
                f"The archive {directory} cannot be used ({error.strerror or error}); check its folder and its disk."
            ) from error

    def append(self, records: Sequence[Record]) -> Position:
        """Keeps a group for good: on return it is on the disk. Raises OSError, and has kept nothing then."""
        parts: list[bytes] = []
        for text, offset, end, data, skipped in records:
            name = text.encode("utf-8")
            parts += (_RECORD.pack(len(name), SKIPPED if skipped else 0, len(data), offset, end), name, data)
        raw = b"".join(parts)
        stored = pa.compress(raw, codec=_CODEC, asbytes=True)
        lengths = _FRAME.pack(_MAGIC, 0, len(raw), len(stored))[8:]
        frame = _MAGIC + struct.pack("<I", zlib.crc32(stored, zlib.crc32(lengths))) + lengths + stored
        if self._fd < 0:
            self._open_last()
        elif self.end.byte + len(frame) > self._file_max_bytes:
            self._begin_file(self.end.file + 1)
        at = self.end.byte
        try:
            _write_all(self._fd, frame)
            os.fdatasync(self._fd)
        except BaseException:
            # What was written of it must not stand before the next frame; where even that fails, the file is opened
            # anew, and its end looked for, before anything is written again.
            try:
                os.ftruncate(self._fd, at)
                os.fdatasync(self._fd)
            except OSError:
                fd, self._fd = self._fd, -1
                os.close(fd)
            raise
        self.end = Position(file=self.end.file, byte=at + len(frame))
        return self.end

    def groups(self, after: Position) -> Iterator[Group]:
        """What was kept after a position, in order."""
        return read_groups(self._directory, after)

    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(_path(self._directory, number).stat().st_size for number in _numbers(self._directory))

    def close(self) -> None:
        """Closes the files and gives the archive free."""
        for fd in (self._fd, self._lock_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._lock_fd = -1

    def _open_last(self) -> None:
        """Opens the last file for appending after its last whole frame; a torn one after that is removed."""
        number = self.end.file
        path = _path(self._directory, number)
        if not path.exists() or path.stat().st_size == 0:
            path.unlink(missing_ok=True)
            self._begin_file(number)
            return
        begin = _begin(path)
        whole = begin
        for _, end, _ in _frames(path, begin):
            whole = end
        if begin == 0:
            # Its first line is not whole. A file that was never begun goes; one that was damaged is kept as it is.
            if whole == 0:
                path.unlink()
            self._begin_file(number if whole == 0 else number + 1)
            return
        size = path.stat().st_size
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        if whole < size:
            os.ftruncate(self._fd, whole)
            os.fdatasync(self._fd)
        self.end = Position(file=number, byte=whole)

    def _begin_file(self, number: int) -> None:
        path = _path(self._directory, number)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        head = json.dumps({"goodput_archive": 1, "id": self.id, "file": number}).encode("ascii") + b"\n"
        fd = os.open(path, flags, 0o600)
        try:
            _write_all(fd, head)
            os.fsync(fd)
            _sync_directory(self._directory)
        except BaseException:
            os.close(fd)
            path.unlink(missing_ok=True)
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = fd
        self.end = Position(file=number, byte=len(head))


def archive_id(directory: Path) -> str | None:
    """What tells the archive in this folder from others; None when there is none. Raises ArchiveError when a file
    there was written by a later version."""
    for number in _numbers(directory):
        head = _head(_path(directory, number))
        if head is not None:
            return str(head["id"])
    return None


def read_groups(directory: Path, after: Position = START) -> Iterator[Group]:
    """The groups after a position, in order. A torn end is passed over; damage inside a file too, and is told.

    Raises ArchiveError when the archive cannot be read.
    """
    try:
        for number in _numbers(directory):
            if number < after.file:
                continue
            path = _path(directory, number)
            begin = _begin(path)
            at = max(begin, after.byte) if number == after.file else begin
            for raw, end, damaged_bytes in _frames(path, at):
                yield Group(
                    records=tuple(_records(raw)), end=Position(file=number, byte=end), damaged_bytes=damaged_bytes
                )
    except OSError as error:
        raise ArchiveError(
            f"The archive {directory} cannot be read ({error.strerror or error}); check its folder and its disk."
        ) from error


def _frames(path: Path, at: int) -> Iterator[tuple[bytes, int, int]]:
    """Each whole frame from byte `at`: its records' bytes, where it ends, and how many bytes before it were none."""
    damaged = 0
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        while at + _FRAME.size <= size:
            raw = _frame_at(file.fileno(), at, size)
            if raw is None:
                found = _next_frame(file.fileno(), at + 1, size)
                if found is None:
                    return
                damaged += found - at
                at = found
                continue
            records, end = raw
            yield records, end, damaged
            damaged = 0
            at = end


def _frame_at(fd: int, at: int, size: int) -> tuple[bytes, int] | None:
    magic, crc, raw_bytes, stored_bytes = _FRAME.unpack(os.pread(fd, _FRAME.size, at))
    end = at + _FRAME.size + stored_bytes
    if magic != _MAGIC or end > size or raw_bytes > FRAME_MAX_BYTES:
        return None
    body = os.pread(fd, 8 + stored_bytes, at + 8)
    if len(body) != 8 + stored_bytes or zlib.crc32(body) != crc:
        return None
    raw: bytes = pa.decompress(body[8:], decompressed_size=raw_bytes, codec=_CODEC, asbytes=True)
    return raw, end


def _next_frame(fd: int, at: int, size: int) -> int | None:
    """Where after damage the next whole frame begins."""
    block = 2**20
    while at < size:
        data = os.pread(fd, block + len(_MAGIC), at)
        found = data.find(_MAGIC)
        while found >= 0:
            if at + found + _FRAME.size <= size and _frame_at(fd, at + found, size) is not None:
                return at + found
            found = data.find(_MAGIC, found + 1)
        at += block
    return None


def _records(raw: bytes) -> Iterator[Record]:
    at = 0
    while at < len(raw):
        name_bytes, flags, data_bytes, offset, end = _RECORD.unpack_from(raw, at)
        at += _RECORD.size
        name = raw[at : at + name_bytes].decode("utf-8")
        at += name_bytes
        data = raw[at : at + data_bytes]
        at += data_bytes
        yield Record(name=name, offset_bytes=offset, end_bytes=end, data=data, skipped=bool(flags & SKIPPED))


def _head(path: Path) -> dict[str, object] | None:
    """The first line of a file; None when it was cut short."""
    with path.open("rb") as file:
        line = file.readline(4096)
    try:
        head = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        head = None
    if not isinstance(head, dict) or "id" not in head:
        return None
    if head.get("goodput_archive") != 1:
        raise ArchiveError(f"{path} was written by a later version of Goodput; use that version.")
    return head


def _begin(path: Path) -> int:
    """Where the frames of a file begin: after its first line, or at 0 where that is not whole."""
    if _head(path) is None:
        return 0
    with path.open("rb") as file:
        return len(file.readline(4096))


def _numbers(directory: Path) -> list[int]:
    try:
        found = [_NAME.fullmatch(entry.name) for entry in os.scandir(directory)]
    except FileNotFoundError:
        return []
    return sorted(int(match[1]) for match in found if match is not None)


def _path(directory: Path, number: int) -> Path:
    return directory / f"{number:06d}.archive"


def _locked(directory: Path) -> int:
    path = directory / "lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(fd)
        raise ArchiveError(
            f"The archive {directory} is in use by another process (pid {holder}); stop that collector first."
        ) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, str(os.getpid()).encode("ascii"), 0)
    return fd


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
