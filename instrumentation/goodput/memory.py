"""The memory segments that events are handed over to, and what a dead process left in them.

One file on tmpfs, never shrunk:

    page 0   magic, cursors, the pending step, the outcome so far, the lock file that leads here
    then     two halves of 256 KiB: whole lines from their start, NULs after them

Lines are appended with `mmap.write`, which checks the room, copies and moves its position in one C call. Under the
interpreter lock that is atomic: any thread, and a signal handler in the middle of another write, may append without
a lock and without a system call. Generation g of the stream lies in half g % 2; the spool writer empties the
generations in order and gives a half back once it is on disk.

What is not one store is written so that a kill between any two instructions leaves a readable state: cursors
and the pending step each have two slots that take turns, and a slot counts only when it is whole.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import zlib
from dataclasses import dataclass
from pathlib import Path

from goodput.liveness import hold, let_go

HALF_BYTES = 256 * 1024
HEADER_BYTES = mmap.PAGESIZE
FILE_BYTES = HEADER_BYTES + 2 * HALF_BYTES

_MAGIC = b"GOODPUT1"
# Native format: each field is one store of eight bytes, which a kill cannot cut in two. But `pack_into` zeroes its
# target first: what stands alone is stored by assignment, which does not; a slot of a step shows by its two turns.
_U64 = struct.Struct("@Q")
_U32 = struct.Struct("<I")
_CURSOR = struct.Struct("<QQQQQ")
_STEP = struct.Struct("@QqqqqqqqddQ")
_DONE_AT = 16
_GENERATIONS_AT = 24
_LOST_AT = 40
_CURSORS_AT = (64, 128)
_STEPS_AT = (192, 320)
_OUTCOME_AT = 1024
_OUTCOME_MAX_BYTES = 1024
_LOCK_AT = 2304

PendingStep = tuple[int, int, int, int, int, int, int, float, float]
"""seq, step, start_ns, end_ns, data_ns, busy_ns, count, loss, lr: the arguments of `format_step`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """How far the stream is on disk.

    Attributes:
        generation, offset: the first byte that is not on disk yet.
        file_number, file_bytes: the spool file that takes it, and its size at that moment; 0 bytes while its
            first line has not been given its names.
    """

    generation: int
    offset: int
    file_number: int
    file_bytes: int


class Memory:
    """A live recorder's memory.

    Attributes:
        path: the file on tmpfs, None when the memory is the process's own and dies with it.
        generation: the generation that takes events now.
        writable: generations below this one have an empty half.
        closed: nothing is taken any more.
    """

    __slots__ = (
        "_cursor_count",
        "_fd",
        "_swap",
        "closed",
        "generation",
        "halves",
        "header",
        "path",
        "writable",
    )

    def __init__(self, path: Path | None, lock: Path | None = None) -> None:
        """Reserve the memory. `lock` is the file that tells readers of it. Raises OSError when tmpfs has no room."""
        self.path = path
        self.halves: tuple[mmap.mmap, mmap.mmap]
        if path is None:
            self.header = mmap.mmap(-1, HEADER_BYTES)
            self.halves = (mmap.mmap(-1, HALF_BYTES), mmap.mmap(-1, HALF_BYTES))
            self._fd = -1
        else:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                # Reserved for good: a store into a page that a full tmpfs cannot give would be a SIGBUS.
                os.posix_fallocate(fd, 0, FILE_BYTES)
                flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
                self.header = mmap.mmap(fd, HEADER_BYTES, flags=flags)
                first = mmap.mmap(fd, HALF_BYTES, flags=flags, offset=HEADER_BYTES)
                self.halves = (first, mmap.mmap(fd, HALF_BYTES, flags=flags, offset=HEADER_BYTES + HALF_BYTES))
                hold(path, fd)
            except BaseException:
                os.close(fd)
                path.unlink(missing_ok=True)
                raise
            self._fd = fd
        self.generation = 0
        self.writable = 2
        self.closed = False
        self._cursor_count = 0
        self._swap = threading.RLock()
        if lock is not None:
            name = os.fsencode(lock)[: HEADER_BYTES - _LOCK_AT - 4]
            self.header[_LOCK_AT : _LOCK_AT + 4 + len(name)] = _U32.pack(len(name)) + name
        self._store(_GENERATIONS_AT + 8, 1)
        self.note_cursor(0, 0, 0, 0)
        self.header[: len(_MAGIC)] = _MAGIC

    def write_or_swap(self, line: bytes) -> bool:
        """Append where the fast write found no room; False when both halves are full or the memory is closed.

        The lock is held once per 256 KiB, for a few microseconds, with nothing in it that waits. It is re-entrant
        because a signal handler may record too.
        """
        with self._swap:
            if self.closed:
                return False
            for _ in range(2):
                try:
                    self.halves[self.generation & 1].write(line)
                    return True
                except ValueError:
                    if self.generation + 1 >= self.writable:
                        return False
                    self.generation += 1
            return False

    def give_back(self, generation: int) -> None:
        """Empty the half of a generation that is on disk, for the next but one."""
        half = self.halves[generation & 1]
        used = half.tell()
        half[:used] = bytes(used)
        half.seek(0)
        self._store(_GENERATIONS_AT + 8 * (generation & 1), generation + 2)
        self.writable = generation + 3

    def note_cursor(self, generation: int, offset: int, file_number: int, file_bytes: int) -> None:
        """Keep how far the stream is on disk: what a `Cursor` tells."""
        self._cursor_count += 1
        body = _CURSOR.pack(self._cursor_count, generation, offset, file_number, file_bytes)
        at = _CURSORS_AT[self._cursor_count & 1]
        self.header[at : at + _CURSOR.size + 4] = body + _U32.pack(zlib.crc32(body))

    def note_step(self, turn: int, step: PendingStep) -> None:
        """Keep a step that waits to be joined with the next ones; `turn` counts up from 1.

        The turn stands at both ends and the fields are stored in order, so a slot cut off by a kill shows two turns.
        """
        _STEP.pack_into(self.header, _STEPS_AT[turn & 1], turn, *step, turn)

    def step_done(self, turn: int) -> None:
        """The pending steps up to this turn have been written as events."""
        self._store(_DONE_AT, turn)

    def note_lost(self, count: int) -> None:
        """Keep how many events found no room and are not told of yet: a kill must not hide them."""
        try:
            self._store(_LOST_AT, count)
        except ValueError:
            # Closed meanwhile.
            pass

    def note_outcome(self, outcome: bytes | None) -> None:
        """Keep the fields of the `stop` that would follow if the process died now; None takes it back."""
        _U32.pack_into(self.header, _OUTCOME_AT, 0)
        if outcome is not None and len(outcome) <= _OUTCOME_MAX_BYTES:
            self.header[_OUTCOME_AT + 8 : _OUTCOME_AT + 8 + len(outcome)] = outcome
            _U32.pack_into(self.header, _OUTCOME_AT + 4, zlib.crc32(outcome))
            _U32.pack_into(self.header, _OUTCOME_AT, len(outcome))

    def _store(self, at: int, value: int) -> None:
        self.header[at : at + 8] = _U64.pack(value)

    def close(self) -> None:
        """Take nothing more and unmap. The file stays: removing it is its owner's decision."""
        with self._swap:
            self.closed = True
        for part in (*self.halves, self.header):
            part.close()
        if self.path is not None and self._fd >= 0:
            fd, self._fd = self._fd, -1
            let_go(self.path, fd)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """What a dead process left in its memory.

    Attributes:
        cursor: how far its stream was on disk.
        stream: the bytes after that, up to the end of the last whole line.
        pending: the step that waited to be joined with the next ones, None for none.
        outcome: the fields of the `stop` that it would have said, None for none.
        damaged: NULs found inside lines; such lines are left out.
        lost: events that had found no room, and that no `dropped` event in the stream tells of.
    """

    cursor: Cursor
    stream: bytes
    pending: PendingStep | None
    outcome: bytes | None
    damaged: int
    lost: int


def read_remains(image: bytes) -> Remains:
    """Read the whole memory file of a dead process. Raises ValueError when it is none, or was never set up."""
    header_bytes = len(image) - 2 * HALF_BYTES
    if header_bytes < 4096 or not image.startswith(_MAGIC):
        raise ValueError("not a memory segment of the recorder")
    cursors = []
    for at in _CURSORS_AT:
        body = image[at : at + _CURSOR.size]
        if _U32.unpack_from(image, at + _CURSOR.size)[0] == zlib.crc32(body):
            cursors.append(_CURSOR.unpack(body))
    if not cursors:
        raise ValueError("no whole cursor in the memory segment")
    _, generation, offset, file_number, file_bytes = max(cursors)

    stream, damaged = b"", 0
    for g in (generation, generation + 1):
        # A half that still carries another generation's number is on disk already.
        if _U64.unpack_from(image, _GENERATIONS_AT + 8 * (g & 1))[0] == g:
            start = header_bytes + (g & 1) * HALF_BYTES
            half = image[start + (offset if g == generation else 0) : start + HALF_BYTES]
            whole, torn = _whole_lines(half)
            stream += whole
            damaged += torn

    done = _U64.unpack_from(image, _DONE_AT)[0]
    steps = [_STEP.unpack_from(image, at) for at in _STEPS_AT]
    whole_steps = [step for step in steps if step[0] == step[-1] and step[0] > done]
    pending = max(whole_steps)[1:-1] if whole_steps else None

    length, crc = struct.unpack_from("<II", image, _OUTCOME_AT)
    outcome = image[_OUTCOME_AT + 8 : _OUTCOME_AT + 8 + length] if 0 < length <= _OUTCOME_MAX_BYTES else None
    if outcome is not None and zlib.crc32(outcome) != crc:
        outcome = None
    return Remains(
        cursor=Cursor(generation=generation, offset=offset, file_number=file_number, file_bytes=file_bytes),
        stream=stream,
        pending=pending,
        outcome=outcome,
        damaged=damaged,
        lost=_U64.unpack_from(image, _LOST_AT)[0],
    )


def lock_of(header: bytes) -> Path | None:
    """The lock file that a memory's header names; None when it is no memory, or names none."""
    if not header.startswith(_MAGIC) or len(header) < HEADER_BYTES:
        return None
    (length,) = _U32.unpack_from(header, _LOCK_AT)
    return Path(os.fsdecode(header[_LOCK_AT + 4 : _LOCK_AT + 4 + length])) if length else None


def _whole_lines(half: bytes) -> tuple[bytes, int]:
    """The lines of a half, and how many of them a kill in the middle of a copy left with holes."""
    end = half.rfind(b"\n") + 1
    lines = half[:end]
    if b"\0" not in lines:
        return lines, 0
    kept = [line for line in lines.splitlines(keepends=True) if b"\0" not in line]
    return b"".join(kept), lines.count(b"\n") - len(kept)
