"""Who of a node's sources has died: their memory is taken up, and their end is told if they did not tell it."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from goodput.events import Kind, format_event, naming_prefix
from goodput.liveness import SUFFIX, LivenessLock
from goodput.memory import FILE_BYTES, read_remains
from goodput.process import boot_id
from goodput.recovery import recover_source
from goodput.spoolfile import parse_segment, segment_path

EXIT_SUFFIX = ".exit"
"""What the source has in its name that tells another's end."""
LOST_SUFFIX = ".lost"
"""What the source has in its name that tells what of another's was lost."""
_BEAT_SUFFIX = ".hb"
_TAIL_BYTES = 256 * 1024
_LOCK_MAX_BYTES = 65_536
_AGAIN_NS = 10_000_000_000
_STOP = b'"kind":"stop"'


@dataclass(slots=True)
class _Seen:
    """A source whose lock has been seen."""

    run: str
    alive: bool = False


class Deaths:
    """Watches the liveness locks of one spool directory.

    A death is known only from the lock, which the kernel gives free when its process ends: pids repeat, and mean
    nothing in another namespace. What is told of an end is one event of a source of its own, in a file that is made
    only once, so that a watcher killed anywhere tells it once.
    """

    def __init__(self, directory: Path, complain: Callable[[str], None]) -> None:
        self._directory = directory
        self._complain = complain
        self._seen: dict[str, _Seen] = {}
        self._not_before_ns: dict[str, int] = {}

    def look(self, now_ns: int) -> set[str]:
        """Takes care of those who have died since; the sources that have a lock still (live, or not yet complete)."""
        locked: set[str] = set()
        for path in self._locks():
            source = path.name.removesuffix(SUFFIX)
            try:
                if self._take_care(path, source, now_ns):
                    locked.add(source)
            except (OSError, ValueError) as error:
                locked.add(source)
                self._not_before_ns[source] = now_ns + _AGAIN_NS
                self._complain(f"{path.name}: what its process left could not be taken up: {error}")
        for source in [source for source in self._seen if source not in locked]:
            seen = self._seen[source]
            if seen.alive and not self._said_stop(source, b""):
                # Somebody else took up its memory, such as the next recorder on this node.
                self._tell(source, seen.run, now_ns)
            del self._seen[source]
            self._not_before_ns.pop(source, None)
        return locked

    def runs(self) -> set[str]:
        """The runs that have a source here."""
        return {seen.run for seen in self._seen.values()}

    def _take_care(self, path: Path, source: str, now_ns: int) -> bool:
        """Whether the source still has its lock."""
        if source not in self._seen:
            run = _run_of(path)
            if run is not None:
                self._seen[source] = _Seen(run=run)
        if now_ns < self._not_before_ns.get(source, 0):
            return True
        lock = LivenessLock.take_over(path)
        if lock is None:
            seen = self._seen.get(source)
            if seen is not None:
                seen.alive = True
            return path.exists()
        try:
            info = lock.read()
            seen = self._seen.setdefault(source, _Seen(run=info.run))
            last_ns = now_ns if seen.alive else min(self._last_sign_ns(source), now_ns)
            if not self._said_stop(source, _memory(info.memory, lock.owner_uid())):
                self._tell(source, info.run, last_ns)
            recovered = recover_source(lock, boot_id())
        finally:
            lock.release(remove=False)
        if recovered is None:
            # Its memory is another container's: for a day its files are left as they are.
            self._not_before_ns[source] = now_ns + _AGAIN_NS
            return True
        self._seen.pop(source, None)
        return False

    def _said_stop(self, source: str, memory: bytes) -> bool:
        """Whether the source told its end, in its files or in what it left in memory."""
        if _STOP in memory:
            return True
        number, last = -1, None
        for entry in os.scandir(self._directory):
            segment = parse_segment(Path(entry.path))
            if segment is not None and segment.source == source and segment.number > number:
                number, last = segment.number, segment.path
        if last is None:
            return False
        try:
            with last.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                return _STOP in os.pread(file.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES))
        except OSError:
            return False

    def _tell(self, source: str, run: str, ts_ns: int) -> None:
        """Writes the `exit_observed` of a source, unless it is there already. Raises OSError."""
        name = f"{source}{EXIT_SUFFIX}"
        path = segment_path(self._directory, name, 0)
        line = format_event(Kind.EXIT_OBSERVED, 0, ts_ns, {"of": source})
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            try:
                os.write(fd, naming_prefix(run, name) + line[1:])
                os.fsync(fd)
            finally:
                os.close(fd)
            try:
                os.link(draft, path)
            except FileExistsError:
                pass
        finally:
            draft.unlink(missing_ok=True)

    def _last_sign_ns(self, source: str) -> int:
        """When the source last wrote anything, by its files."""
        names = (source, f"{source}{_BEAT_SUFFIX}")
        latest = 0
        for entry in os.scandir(self._directory):
            segment = parse_segment(Path(entry.path))
            if segment is not None and segment.source in names:
                latest = max(latest, entry.stat(follow_symlinks=False).st_mtime_ns)
        if latest == 0:
            latest = (self._directory / f"{source}{SUFFIX}").lstat().st_mtime_ns
        return latest

    def _locks(self) -> list[Path]:
        try:
            entries = [entry.name for entry in os.scandir(self._directory)]
        except FileNotFoundError:
            return []
        return [self._directory / name for name in sorted(entries) if name.endswith(SUFFIX) and name[0] != "."]


def owner_of(source: str) -> str:
    """The source whose lock keeps this one's files: what speaks of a rank goes with the rank."""
    for suffix in (_BEAT_SUFFIX, EXIT_SUFFIX, LOST_SUFFIX):
        source = source.removesuffix(suffix)
    return source


def _run_of(path: Path) -> str | None:
    """The run that a lock file names; None where it is no lock file of ours, or not to be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        found = json.loads(os.read(fd, _LOCK_MAX_BYTES))
        return str(found["run"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
    finally:
        os.close(fd)


def _memory(path: str | None, owner_uid: int) -> bytes:
    """What a dead source's memory would still say; nothing where there is none to be read."""
    if path is None:
        return b""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != owner_uid or found.st_size > 2 * FILE_BYTES:
            return b""
        remains = read_remains(os.pread(fd, found.st_size, 0))
    except (OSError, ValueError):
        return b""
    finally:
        os.close(fd)
    return remains.stream + (_STOP if remains.outcome is not None else b"")
