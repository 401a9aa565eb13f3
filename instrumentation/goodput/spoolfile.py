"""The numbered files that one source writes on disk: `<source>.NNNNNN.jsonl`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from goodput.events import naming_prefix

FILE_MAX_BYTES = 16 * 1024 * 1024

_NAME = re.compile(r"(?P<source>.+)\.(?P<number>\d{6,})\.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Segment:
    """One spool file. Segments sort by source, then in the order in which they were written."""

    source: str
    number: int
    path: Path


def segment_path(directory: Path, source: str, number: int) -> Path:
    return directory / f"{source}.{number:06d}.jsonl"


def parse_segment(path: Path) -> Segment | None:
    """The segment of that name, None when the name is not a spool file's."""
    found = _NAME.fullmatch(path.name)
    if found is None:
        return None
    return Segment(source=found["source"], number=int(found["number"]), path=path)


class SpoolFile:
    """The file that a source writes now, and the numbers before it.

    Attributes:
        number: number of the open file, or of the next one to be opened.
        size_bytes: bytes in the open file.
        prefix: what a file begins with instead of the first event's `{`.
    """

    __slots__ = ("_directory", "_fd", "_source", "number", "prefix", "size_bytes")

    def __init__(self, directory: Path, run: str, source: str) -> None:
        self._directory = directory
        self._source = source
        self._fd = -1
        self.number = 0
        self.size_bytes = 0
        self.prefix = naming_prefix(run, source)

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    def vanished(self) -> bool:
        """Somebody removed the open file: what is written to it now would be lost."""
        return self._fd >= 0 and os.fstat(self._fd).st_nlink == 0

    def create(self) -> None:
        """Open file `number` and begin it with the prefix. Raises OSError, and leaves no file then."""
        path = segment_path(self._directory, self._source, self.number)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(path, flags, 0o600)
        try:
            if os.write(fd, self.prefix) != len(self.prefix):
                raise OSError(f"no room for the first line of {path}")
        except BaseException:
            os.close(fd)
            path.unlink(missing_ok=True)
            raise
        self._fd = fd
        self.size_bytes = len(self.prefix)

    def write(self, data: bytes) -> int:
        """Append; gives how many bytes were taken, which may be fewer. Raises OSError."""
        taken = os.write(self._fd, data)
        self.size_bytes += taken
        return taken

    def close(self) -> None:
        """Close the open file; the next one gets the next number."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self.number += 1
            self.size_bytes = 0
            os.close(fd)

    def used_bytes(self) -> int:
        """Bytes of all files of this source that are still on disk."""
        total = 0
        for entry in os.scandir(self._directory):
            segment = parse_segment(Path(entry.path))
            if segment is not None and segment.source == self._source:
                try:
                    total += entry.stat(follow_symlinks=False).st_size
                except FileNotFoundError:
                    pass
        return total
