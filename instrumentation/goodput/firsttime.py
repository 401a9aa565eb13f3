"""Whether a step is computed for the first time in a run, across the restarts on this node.

How far a run has come is kept in small files, one per run and rank, in the folder `steps` of two places:

- on tmpfs, mapped: what `first_time` has answered is stored there at once, without a system call, so that a process
  killed right after a side effect does not have it again;
- in the spool, `{"run": "llama-7b", "step": 1200}`, by the recorder's own thread: the steps that are done, at most some
  seconds late. It outlives a reboot; a file not touched for 30 days is removed.

The files' name is made of the run's name, `run_key(run)`, and the rank; on tmpfs of the spool's path too, so that a new
spool is a new beginning. All ranks' files count at a start, because ranks move about. It errs towards "not the first
time" on a node that has seen the run; on a node that has not, only the steps up to the one that was resumed from are
known to have been computed.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

from goodput.directory import prepare_directory
from goodput.guard import Guard

FOLDER = "steps"
_WRITE_EVERY_S = 5.0
"""Where tmpfs keeps it too, the disk is for a reboot, which costs the last seconds of a file anyway."""
KEEP_S = 30 * 86400.0
_MAGIC = b"GPSTEPS1"
_SLOT = struct.Struct("@q")
_ASKED_AT = 8
_DONE_AT = 16
_FILE_BYTES = mmap.PAGESIZE
_LINE_BYTES = 1024
_READ_BYTES = 4096


def run_key(run: str) -> str:
    """A run's name as part of a file's name: 16 hexadecimal digits of the SHA-256 of its UTF-8."""
    return hashlib.sha256(run.encode("utf-8", "replace")).hexdigest()[:16]


class FirstTimes:
    """What one recorder knows of steps that were computed before.

    `first` and `fell_back` are called by the training thread, `note_done` and `close` by the recorder's own.

    Attributes:
        before: the last step that had been computed when this life began; -1 for none.
    """

    __slots__ = ("_asked", "_disk", "_done", "_guard", "_mapped", "_memory", "_run", "_written", "_written_s", "before")

    def __init__(self, *, run: str, rank: int, memory: Path | None, spool: Path | None, guard: Guard) -> None:
        """`memory`: our folder on tmpfs, None for none; `spool`: the spool directory, None when it cannot be used.
        Never raises: what cannot be kept is counted, and forgotten with the process."""
        self._run = run
        self._guard = guard
        self._asked = self._done = -1
        self._written = -1
        self._written_s = float("-inf")
        self._mapped: mmap.mmap | None = None
        self._memory = None if memory is None else memory / FOLDER / f"{_memory_key(run, spool)}-r{rank}"
        self._disk = None if spool is None else spool / FOLDER / f"{run_key(run)}-r{rank}"
        self.before = known_step(run, memory, spool)
        if self._memory is not None:
            try:
                self._mapped = _map(self._memory, self.before)
            except (OSError, ValueError) as error:
                guard.caught("steps computed before cannot be kept on tmpfs", error)

    def first(self, step: int, done: int | None) -> bool:
        """Step `step` has not been computed before this life of the loop; `done` is the last step that is."""
        if done is not None and done < self._done:
            self.fell_back()
        if step <= self.before:
            return False
        if step < self._asked:
            # The loop is behind what it asked before: it goes over its own steps again.
            self.fell_back()
            return False
        self._asked = step
        mapped = self._mapped
        if mapped is not None:
            try:
                # Not `pack_into`, which zeroes its target first: a kill in between would forget all.
                mapped[_ASKED_AT : _ASKED_AT + _SLOT.size] = _SLOT.pack(step)
            except ValueError:
                # Closed meanwhile: the record has ended.
                self._mapped = None
        return True

    def fell_back(self) -> None:
        """A checkpoint was loaded, or the step's number fell: all that was reached so far has been computed."""
        self.before = max(self.before, self._asked, self._done)

    def resumed(self, step: int | None, done: int | None = None) -> None:
        """The loaded checkpoint holds the steps up to this one; `done` is the last step that is."""
        self.fell_back()
        if done is not None:
            # The recorder's thread may not have seen it yet.
            self.before = max(self.before, done)
        if step is not None:
            self.before = max(self.before, step)

    def note_done(self, done: int | None, frozen: Callable[[], bool] = lambda: False, *, final: bool = False) -> None:
        """Keep how far the loop has come, later where the disk is frozen; `final`: at once. Raises OSError."""
        if done is not None:
            if done < self._done:
                self.fell_back()
            self._done = done
        reached = max(self.before, self._asked, self._done)
        if self._mapped is not None:
            self._mapped[_DONE_AT : _DONE_AT + _SLOT.size] = _SLOT.pack(reached)
        if reached <= self._written or self._disk is None:
            return
        # What tmpfs holds need not go to the disk each time.
        now_s = time.monotonic()
        due = final or self._mapped is None or now_s - self._written_s >= _WRITE_EVERY_S
        if due and not frozen():
            self._written_s = now_s
            # Once, whatever comes of it: a disk that refuses is told of by what writes the events.
            self._written = reached
            _write(self._disk, self._run, reached)

    def close(self) -> None:
        """Leave the mapped file: what it holds is in the spool now. Raises OSError."""
        mapped, self._mapped = self._mapped, None
        if mapped is None or self._memory is None:
            return
        mapped.close()
        if self._disk is not None and self._disk.exists():
            self._memory.unlink(missing_ok=True)

    def abandon(self) -> None:
        """In a forked child: the files are the parent's."""
        self._mapped = self._memory = self._disk = None


def known_step(run: str, memory: Path | None, spool: Path | None) -> int:
    """The last step of a run that this node knows to have been computed; -1 for none."""
    best = -1
    places = ((memory, _memory_key(run, spool), _read_mapped), (spool, run_key(run), _read_written))
    for root, key, read in places:
        try:
            paths = [] if root is None else sorted((root / FOLDER).glob(f"{key}-r*"))
        except OSError:
            continue
        for path in paths:
            try:
                found = read(_content(path), run)
            except (OSError, ValueError, KeyError, TypeError, struct.error):
                continue
            best = max(best, found)
    return best


def sweep_steps(root: Path | None) -> None:
    """Remove files of runs that nobody has gone on with for a month."""
    try:
        for path in [] if root is None else (root / FOLDER).iterdir():
            if time.time() - path.lstat().st_mtime > KEEP_S:
                path.unlink(missing_ok=True)
    except OSError:
        pass


def _memory_key(run: str, spool: Path | None) -> str:
    return run_key(f"{run}\0{spool}")


def _map(path: Path, before: int) -> mmap.mmap:
    prepare_directory(path.parent)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        # Reserved for good: a store into a page that a full tmpfs cannot give would be a SIGBUS.
        os.posix_fallocate(fd, 0, _FILE_BYTES)
        os.utime(fd)
        mapped = mmap.mmap(fd, _FILE_BYTES)
    finally:
        os.close(fd)
    _SLOT.pack_into(mapped, _ASKED_AT, before)
    _SLOT.pack_into(mapped, _DONE_AT, before)
    mapped[: len(_MAGIC)] = _MAGIC
    return mapped


def _write(path: Path, run: str, step: int) -> None:
    # The spool first: it may have become a link, or somebody else's.
    prepare_directory(path.parent.parent)
    prepare_directory(path.parent)
    line = json.dumps({"run": run[:_LINE_BYTES], "step": step}).encode("ascii").ljust(_LINE_BYTES) + b"\n"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.pwrite(fd, line, 0)
    finally:
        os.close(fd)


def _content(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if os.fstat(fd).st_uid not in (os.geteuid(), 0):
            raise ValueError(f"{path} belongs to another user")
        return os.pread(fd, _READ_BYTES, 0)
    finally:
        os.close(fd)


def _read_mapped(content: bytes, run: str) -> int:
    if not content.startswith(_MAGIC):
        raise ValueError("not a file of steps")
    return int(max(_SLOT.unpack_from(content, _ASKED_AT)[0], _SLOT.unpack_from(content, _DONE_AT)[0]))


def _read_written(content: bytes, run: str) -> int:
    found = json.loads(content)
    if found["run"] != run[:_LINE_BYTES]:
        raise ValueError("another run's file of steps")
    return int(found["step"])
