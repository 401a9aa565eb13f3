"""Files of events, read in slices that end where a line does, each from where the last ingest stopped."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from goodput_collector.contract import Reason
from goodput_collector.errors import InputFileError
from goodput_collector.lines import HEAD_BYTES, MAX_LINE_BYTES, Fragment, split_line

SLICE_BYTES = 64 * 2**20
_PRINT_HEAD_BYTES = 64 * 2**10
_PRINT_TAIL_BYTES = 4 * 2**10
_BLOCK_BYTES = 2**20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # what some editors put before the first line of UTF-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """What could not be taken, at a place in its stream; `pending` while its line has no end."""

    offset_bytes: int
    reason: str
    head: bytes
    pending: bool = False

    @property
    def breaks(self) -> bool:
        """Whether nothing may carry over it. A line that is not finished has not been passed yet."""
        return not self.pending and self.reason != Reason.NUL


class Slice(NamedTuple):
    """Whole lines of a stream: `data` lies at `base_bytes`; `end_bytes` is where the next slice begins.

    `skipped` is what stands after the data and was left out of it: too long to be held, or not yet finished.
    """

    base_bytes: int
    data: bytes
    end_bytes: int
    fingerprint: str
    skipped: tuple[Rejected, ...] = ()


def check_readable(path: Path) -> None:
    """Raises InputFileError, with what to do, where `path` is no file that can be read."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise InputFileError(f"There is no file {path}; check its name.") from None
    except OSError as error:
        raise InputFileError(f"{path} cannot be read ({error.strerror}); check its name and permissions.") from error
    if stat.S_ISDIR(mode):
        raise InputFileError(f"{path} is a directory; name the event files in it, such as {path}/*.jsonl.")
    if not stat.S_ISREG(mode):
        raise InputFileError(f"{path} is not a regular file; write the events to a file first.")
    if not os.access(path, os.R_OK):
        raise InputFileError(f"{path} may not be read; check its permissions.")


class StreamReader:
    """Reads one file from `offset_bytes` on, if `fingerprint` shows that it is the file known so far; else from 0.

    Offsets of a `.gz` file count the bytes inside it.
    """

    def __init__(self, path: Path, offset_bytes: int = 0, fingerprint: str | None = None) -> None:
        try:
            self._file, self._end_bytes = _open(path)
        except OSError as error:
            raise InputFileError(
                f"{path} cannot be read ({error.strerror or error}); check its permissions and that it is whole."
            ) from error
        self._path = path
        self._held_at, self._held = 0, b""
        self._head = self._read_at(0, _PRINT_HEAD_BYTES)
        self._at, self._tail = 0, b""
        self.resumed = fingerprint is not None and self._same(offset_bytes, fingerprint)
        if not self.resumed:
            self._at, self._tail = 0, b""

    def __enter__(self) -> StreamReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def slices(self, slice_bytes: int = SLICE_BYTES) -> Iterator[Slice]:
        """All that has come since, in slices of about `slice_bytes`; at least one, if only to tell the end."""
        if self._at == 0 and self._head.startswith(_BYTE_ORDER_MARK):
            self._at, self._tail = len(_BYTE_ORDER_MARK), _BYTE_ORDER_MARK
        want_bytes = slice_bytes
        while True:
            data = self._read_at(self._at, want_bytes)
            cut = data.rfind(b"\n") + 1
            if len(data) < want_bytes:
                yield self._last(data)
                return
            if cut:
                yield self._slice(data[:cut])
                want_bytes = slice_bytes
            elif want_bytes <= MAX_LINE_BYTES:
                want_bytes = MAX_LINE_BYTES + 2
            else:
                long = self._pass_over(data)
                yield long
                if long.skipped[0].pending:
                    return
                want_bytes = slice_bytes

    def _slice(self, data: bytes, skipped: tuple[Rejected, ...] = ()) -> Slice:
        base = self._at
        self._at += len(data)
        self._tail = (self._tail + data[-_PRINT_TAIL_BYTES:])[-_PRINT_TAIL_BYTES:]
        return Slice(base_bytes=base, data=data, end_bytes=self._at, fingerprint=self._fingerprint(), skipped=skipped)

    def _last(self, data: bytes) -> Slice:
        """The end of the file: an unfinished line that could still become an event is left for the next time."""
        data = data.rstrip(b"\0")
        tail_at = data.rfind(b"\n") + 1
        pieces = split_line(data[tail_at:], unfinished=True)
        last = pieces[-1] if pieces else None
        if not isinstance(last, Fragment) or not last.open:
            return self._slice(data)
        cut = tail_at + last.start
        reason = Reason.TOO_LONG if last.reason is Reason.TOO_LONG else Reason.TORN
        head = data[cut : cut + HEAD_BYTES]
        left = Rejected(offset_bytes=self._at + cut, reason=reason, head=head, pending=True)
        return self._slice(data[:cut], (left,))

    def _pass_over(self, data: bytes) -> Slice:
        """Leaves out a line too long to be held, or a stretch of NULs: `data` is how it begins, and has no newline."""
        base, head = self._at, data[:HEAD_BYTES]
        nuls = len(data) - len(data.lstrip(b"\0"))
        if nuls:
            gone = Rejected(offset_bytes=base, reason=Reason.NUL, head=head[:nuls])
            return self._leave_out(data[:nuls], base + nuls, gone)
        at = base + len(data)
        while block := self._read_at(at, _BLOCK_BYTES):
            newline = block.find(b"\n")
            if newline >= 0:
                end = at + newline + 1
                gone = Rejected(offset_bytes=base, reason=Reason.TOO_LONG, head=head)
                return self._leave_out(block[: newline + 1], end, gone)
            at += len(block)
        unfinished = Rejected(offset_bytes=base, reason=Reason.TOO_LONG, head=head, pending=True)
        return self._slice(b"", (unfinished,))

    def _leave_out(self, end_of_it: bytes, end_bytes: int, gone: Rejected) -> Slice:
        base, self._at = self._at, end_bytes
        # What lies before a new offset is its fingerprint, also where it was left out.
        window = min(end_bytes, _PRINT_TAIL_BYTES)
        self._tail = (self._tail + end_of_it)[-window:] if len(end_of_it) >= window else self._window(end_bytes)
        return Slice(base_bytes=base, data=b"", end_bytes=end_bytes, fingerprint=self._fingerprint(), skipped=(gone,))

    def _window(self, end_bytes: int) -> bytes:
        start = max(0, end_bytes - _PRINT_TAIL_BYTES)
        return self._read_at(start, end_bytes - start)

    def _same(self, offset_bytes: int, fingerprint: str | None) -> bool:
        """Whether the first `offset_bytes` are those that were read before, judged by their two ends."""
        self._tail = self._window(offset_bytes)
        if len(self._tail) < min(offset_bytes, _PRINT_TAIL_BYTES):
            return False
        self._at = offset_bytes
        return self._fingerprint() == fingerprint

    def _fingerprint(self) -> str:
        head = hashlib.blake2b(self._head[: self._at], digest_size=16).hexdigest()
        return f"{head}-{hashlib.blake2b(self._tail, digest_size=16).hexdigest()}"

    def _read_at(self, at: int, size_bytes: int) -> bytes:
        """Up to `size_bytes` at `at`. Of a compressed file what was read last is held, to go back in."""
        start = b""
        if self._end_bytes is None and self._held_at <= at <= self._held_at + len(self._held):
            start = self._held[at - self._held_at : at - self._held_at + size_bytes]
        rest_at = at + len(start)
        wanted = size_bytes - len(start)
        if self._end_bytes is not None:
            wanted = min(wanted, self._end_bytes - rest_at)
        data = start
        if wanted > 0:
            try:
                if self._file.tell() != rest_at:
                    self._file.seek(rest_at)
                read = self._file.read(wanted)
            except (OSError, EOFError, zlib.error) as error:
                raise InputFileError(f"{self._path} is damaged or cut short ({error}); get a whole copy.") from error
            data = start + read if start else read
        if self._end_bytes is None:
            self._held_at, self._held = at, data
        return data


def _open(path: Path) -> tuple[BinaryIO, int | None]:
    """The file, and where its unused tail of NULs begins (None: not known beforehand)."""
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb")), None
    file = path.open("rb")
    end = file.seek(0, io.SEEK_END)
    while end > 0:
        start = max(0, end - _BLOCK_BYTES)
        file.seek(start)
        used = len(file.read(end - start).rstrip(b"\0"))
        end = start + used
        if used:
            break
    return file, end
