"""A spool directory shipped to where it is kept: the agent's work, and the collector's on its own machine.

Stateless: how far each file was taken is learned from the answers, so whoever ships next, after any kill, goes on where
this one ended. A file is removed only when all of it was acknowledged and nobody will write to it again.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from goodput.events import Kind, format_event, naming_prefix
from goodput.request import CheckpointRequest, write_request
from goodput.spool import recover_dead
from goodput.spoolfile import parse_segment, segment_path
from goodput_collector.chunks import CHUNKS_MAX, Chunk
from goodput_collector.deaths import LOST_SUFFIX, Deaths, owner_of
from goodput_collector.requests import Asked

CHUNK_BYTES = 2**20
ROUND_BYTES = 8 * 2**20
"""Most bytes of one sending."""
QUIET_NS = 10_000_000_000
"""A file without a lock is complete when nobody has written to it for so long."""
SPOOL_MAX_BYTES = 8 * 2**30

_LONG_CHUNK_BYTES = 17 * 2**20  # more than the longest line that is held
_SWEEP_NS = 600_000_000_000
_CHUNK_COSTS_BYTES = 128


class NotNowError(Exception):
    """Nothing could be sent: try again after `after_s` seconds, None: as the sender sees fit."""

    def __init__(self, reason: str, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.after_s = after_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What came of one chunk: where its stream stands, or None where it was not looked at (too fast, say)."""

    offset_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What came of a sending: one entry for each chunk, in order, and the checkpoints that are asked for."""

    taken: Sequence[Taken]
    asked: Sequence[Asked] = ()


class Sink(Protocol):
    """Where chunks are kept for good."""

    def send(self, chunks: Sequence[Chunk]) -> Receipt:
        """Returns when they are durable. Raises NotNowError, and then they may have been kept or not."""


@dataclass(slots=True)
class Figures:
    """What a shipper has done, and what waits."""

    sent_bytes: int = 0
    sent_chunks: int = 0
    removed_files: int = 0
    dropped_files: int = 0
    dropped_lines: int = 0
    waiting_bytes: int = 0
    failures: int = 0
    complaints: int = 0


@dataclass(slots=True)
class _File:
    """A segment on disk. `stands`: up to where it is kept elsewhere, None while that is not known."""

    path: Path
    source: str
    number: int
    size: int = 0
    mtime_ns: int = 0
    stands: int | None = None
    newest: bool = True
    final: bool = False
    asked_bytes: int = field(default=CHUNK_BYTES)


class Shipper:
    """Ships one spool directory. `step` is called again and again by one thread."""

    def __init__(
        self,
        directory: Path,
        sink: Sink,
        *,
        owner_uid: int,
        complain: Callable[[str], None],
        keep: bool = False,
        max_bytes: int = SPOOL_MAX_BYTES,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """`keep`: leave files where they are, also when all of them was acknowledged."""
        self.figures = Figures()
        self._directory = directory
        self._sink = sink
        self._owner_uid = owner_uid
        self._keep = keep
        self._max_bytes = max_bytes
        self._clock_ns = clock_ns
        self._complained: set[str] = set()
        self._say = complain
        self._deaths = Deaths(directory, self._complain)
        self._files: dict[str, _File] = {}
        self._asked: dict[str, str] = {}
        self._next = 0
        self._swept_ns = clock_ns()

    def step(self) -> bool:
        """Looks at who died and what is new, and sends some of it; whether more waits.

        Raises NotNowError when the sink did not take it.
        """
        locked = self.look()
        return self.send(locked)

    def look(self) -> set[str] | None:
        """Takes care of the dead and of the disk limit; the sources that still have a lock, None where that cannot be
        known now."""
        now_ns = self._clock_ns()
        try:
            locked = self._deaths.look(now_ns)
            if now_ns - self._swept_ns >= _SWEEP_NS:
                self._swept_ns = now_ns
                recover_dead(self._directory)
            self._scan(locked, now_ns)
            self._hold_limit()
        except OSError as error:
            self._complain(f"the spool {self._directory} cannot be read: {error}")
            return None
        return locked

    def send(self, locked: set[str] | None) -> bool:
        """Sends what is new, in turn among the files; removes what is done. Raises NotNowError."""
        batch = self._batch()
        if batch:
            try:
                receipt = self._sink.send([chunk for _, chunk in batch])
            except NotNowError:
                self.figures.failures += 1
                raise
            for (file, chunk), taken in zip(batch, receipt.taken, strict=True):
                if taken.offset_bytes is not None:
                    self._note(file, chunk, taken.offset_bytes)
            self._pass_on(receipt.asked)
        if not self._keep and locked is not None:
            self._remove_done(locked)
        self.figures.waiting_bytes = sum(max(0, file.size - (file.stands or 0)) for file in self._files.values())
        return any(self._sendable(file) for file in self._files.values()) and bool(batch)

    def _scan(self, locked: set[str], now_ns: int) -> None:
        """Brings what is known of the files up to date."""
        found: dict[str, _File] = {}
        newest: dict[str, _File] = {}
        for entry in os.scandir(self._directory):
            segment = parse_segment(Path(entry.path))
            if segment is None:
                continue
            try:
                info = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if not stat.S_ISREG(info.st_mode) or info.st_uid != self._owner_uid:
                self._complain(f"{entry.name} is no file of the spool's owner: left alone")
                continue
            file = self._files.get(entry.name) or _File(path=segment.path, source=segment.source, number=segment.number)
            if info.st_size < file.size:
                file.stands = None  # another file has the name now
            file.size, file.mtime_ns, file.newest = info.st_size, info.st_mtime_ns, True
            before = newest.get(file.source)
            if before is None or before.number < file.number:
                newest[file.source] = file
                if before is not None:
                    before.newest = False
            else:
                file.newest = False
            found[entry.name] = file
        for file in found.values():
            written = file.newest and owner_of(file.source) in locked
            file.final = not written and now_ns - file.mtime_ns >= QUIET_NS
        self._files = found

    def _sendable(self, file: _File) -> bool:
        return file.stands is None or file.stands < file.size

    def _batch(self) -> list[tuple[_File, Chunk]]:
        """Chunks of the files that have more, beginning after the one that came last before."""
        files = sorted(self._files.values(), key=lambda file: (file.source, file.number))
        if not files:
            return []
        start = self._next % len(files)
        batch: list[tuple[_File, Chunk]] = []
        size = 0
        for index in [*range(start, len(files)), *range(start)]:
            file = files[index]
            if not self._sendable(file):
                continue
            chunk = self._chunk(file)
            if chunk is None:
                continue
            if batch and (size + len(chunk.data) > ROUND_BYTES or len(batch) == CHUNKS_MAX):
                self._next = index
                break
            batch.append((file, chunk))
            size += len(chunk.data) + _CHUNK_COSTS_BYTES
        return batch

    def _chunk(self, file: _File) -> Chunk | None:
        """The next whole lines of a file; None where there are none yet."""
        at = file.stands or 0
        try:
            fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._complain(f"{file.path.name} cannot be read: {error}")
            return None
        try:
            data = os.pread(fd, file.asked_bytes, at)
        except OSError as error:
            self._complain(f"{file.path.name} cannot be read: {error}")
            return None
        finally:
            os.close(fd)
        whole = data.rfind(b"\n") + 1
        at_end = at + len(data) >= file.size
        if not whole and not at_end and file.asked_bytes < _LONG_CHUNK_BYTES:
            file.asked_bytes = _LONG_CHUNK_BYTES  # a long line: seen whole, or left out by the collector
            return self._chunk(file)
        final = file.final and at_end
        if not final and (whole or len(data) < _LONG_CHUNK_BYTES):
            data = data[:whole]
        if not data and file.stands is not None and not final:
            return None
        return Chunk(stream=file.path.name.removesuffix(".jsonl"), offset_bytes=at, data=data, final=final)

    def _note(self, file: _File, chunk: Chunk, stands: int) -> None:
        if stands == chunk.offset_bytes + len(chunk.data):
            self.figures.sent_bytes += len(chunk.data)
            self.figures.sent_chunks += 1
        file.stands = stands
        file.asked_bytes = CHUNK_BYTES

    def _remove_done(self, locked: set[str]) -> None:
        now_ns = self._clock_ns()
        for name, file in list(self._files.items()):
            if file.stands is None or file.stands < file.size:
                continue
            if file.newest and (owner_of(file.source) in locked or now_ns - file.mtime_ns < QUIET_NS):
                continue
            try:
                if file.path.lstat().st_size == file.size:
                    file.path.unlink()
                    self.figures.removed_files += 1
                    del self._files[name]
            except FileNotFoundError:
                del self._files[name]
            except OSError as error:
                self._complain(f"{name} cannot be removed: {error}")

    def _hold_limit(self) -> None:
        """Over the limit the oldest files go first, whether they were kept elsewhere or not; what was not, is told."""
        total = sum(file.size for file in self._files.values())
        if total <= self._max_bytes:
            return
        for file in sorted(self._files.values(), key=lambda file: (file.newest, file.mtime_ns)):
            if total <= self._max_bytes:
                return
            if file.source.endswith(LOST_SUFFIX):
                continue
            lines, run = _lost(file.path, file.stands or 0)
            if lines and run is not None:
                self._tell_lost(file, run, lines)
            try:
                file.path.unlink()
            except OSError as error:
                self._complain(f"{file.path.name} cannot be removed: {error}")
                continue
            total -= file.size
            self._files.pop(file.path.name, None)
            if lines:
                self.figures.dropped_files += 1
                self.figures.dropped_lines += lines
                self._say(
                    f"the spool {self._directory} has reached its limit of {self._max_bytes:,} bytes: "
                    f"{file.path.name} was removed with {lines:,} lines that were not yet taken"
                )

    def _tell_lost(self, file: _File, run: str, lines: int) -> None:
        name = f"{file.source}{LOST_SUFFIX}"
        event = format_event(
            Kind.DROPPED, file.number, self._clock_ns(), {"reason": "spool limit of the node", "count": lines}
        )
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(segment_path(self._directory, name, file.number), flags, 0o600)
        except OSError:
            return
        try:
            os.write(fd, naming_prefix(run, name) + event[1:])
        except OSError as error:
            self._complain(f"{name} could not be written: {error}")
        finally:
            os.close(fd)

    def _pass_on(self, asked: Iterable[Asked]) -> None:
        """Puts requests for checkpoints of runs that have a source here where the recorders look for them."""
        new = [one for one in asked if self._asked.get(one.run) != one.id]
        if not new:
            return
        here = self._deaths.runs()
        for one in new:
            if one.run not in here:
                continue
            try:
                write_request(
                    self._directory,
                    CheckpointRequest(id=one.id, run=one.run, step=one.step, until_ns=one.until_ns),
                )
                self._asked[one.run] = one.id
            except OSError as error:
                self._complain(f"a request for a checkpoint of {one.run} could not be passed on: {error}")

    def _complain(self, sentence: str) -> None:
        """Says each sentence once."""
        self.figures.complaints += 1
        if sentence not in self._complained and len(self._complained) < 1000:
            self._complained.add(sentence)
            self._say(sentence)


def _lost(path: Path, stands: int) -> tuple[int, str | None]:
    """How many lines of a file after `stands` would be lost with it, and of which run it is."""
    try:
        with path.open("rb") as file:
            first = file.readline(65_536)
            file.seek(stands)
            lines = sum(block.count(b"\n") for block in iter(lambda: file.read(2**20), b""))
        return lines, str(json.loads(first)["run"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0, None
