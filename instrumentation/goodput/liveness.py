"""Proof of life: a POSIX lock on a small file, which the kernel releases when its process dies.

It holds across PID namespaces, and a forked child does not inherit it. A process that closes any descriptor of the
file loses the lock, and never conflicts with itself: so this module also knows the locks of its own process, and
nobody opens those a second time.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from goodput.frozen import FreezeProbe

SUFFIX = ".lock"

_own: set[Path] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceInfo:
    """What a lock file tells about its source.

    Attributes:
        source, run: names of the source and its run.
        memory: file on tmpfs that holds what is not on disk yet, None for none.
        pid, rank: of the process, for people; pids repeat and differ between namespaces.
        boot_id: the boot of the kernel it ran on.
    """

    source: str
    run: str
    memory: str | None
    pid: int
    rank: int
    boot_id: str | None


class LivenessLock:
    """A lock file that is held."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd

    @classmethod
    def create(cls, directory: Path, info: SourceInfo) -> LivenessLock:
        """Write and take the lock of a new source. It appears under its name only when it is held. Raises OSError."""
        path = directory / f"{info.source}{SUFFIX}"
        hidden = directory / f".{info.source}{SUFFIX}.new"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(hidden, flags, 0o600)
        try:
            os.write(fd, json.dumps(asdict(info)).encode("ascii") + b"\n")
            hold(path, fd)
            hidden.rename(path)
        except BaseException:
            let_go(path, fd)
            hidden.unlink(missing_ok=True)
            raise
        return cls(path, fd)

    @classmethod
    def take_over(cls, path: Path) -> LivenessLock | None:
        """Take the lock of a source whose process has died; None while it lives. Raises OSError."""
        if path.absolute() in _own:
            return None
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours, there = os.fstat(fd), path.lstat()
            if (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino):
                _own.add(path.absolute())
                return cls(path, fd)
        except (BlockingIOError, PermissionError, FileNotFoundError):
            pass
        except BaseException:
            os.close(fd)
            raise
        # Still held, or another reader has finished it meanwhile.
        os.close(fd)
        return None

    def read(self) -> SourceInfo:
        """What the file tells. Raises ValueError when it is not one of ours."""
        try:
            found = json.loads(os.pread(self._fd, 65536, 0))
            memory = found["memory"]
            boot = found["boot_id"]
            return SourceInfo(
                source=str(found["source"]),
                run=str(found["run"]),
                memory=None if memory is None else str(memory),
                pid=int(found["pid"]),
                rank=int(found["rank"]),
                boot_id=None if boot is None else str(boot),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{self.path} is not a lock file of the recorder") from error

    def probe(self) -> FreezeProbe | None:
        """Asks whether the file system of this file is frozen; None where it cannot be asked."""
        try:
            return FreezeProbe(self._fd)
        except OSError:
            return None

    def owner_uid(self) -> int:
        """The user whose process this was."""
        return os.fstat(self._fd).st_uid

    def release(self, *, remove: bool) -> None:
        """Give the lock up; with `remove` there is nothing left to recover and the file goes."""
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        try:
            if remove:
                self.path.unlink(missing_ok=True)
        finally:
            let_go(self.path, fd)


def hold(path: Path, fd: int) -> None:
    """Take the lock of a file that this process has just made. Raises OSError."""
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    _own.add(path.absolute())


def let_go(path: Path, fd: int) -> None:
    """Close a file that was held."""
    os.close(fd)
    _own.discard(path.absolute())


def is_own(path: Path) -> bool:
    """This very process holds the file: nobody in it may open it a second time."""
    return path.absolute() in _own


def is_alive(path: Path) -> bool:
    """The process that holds this file lives. A missing file means that it ended and was taken care of."""
    if is_own(path):
        return True
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False
