"""The spool directory for those who read it: its files, who is alive, and taking up what the dead left.

    for dead in recover_dead(directory):
        print(dead.info.source, dead.events)
    for segment in list_segments(directory):
        read(segment.path)

A reader takes a live source's file up to its last newline. Standard library only.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

from goodput.directory import default_spool_directory, is_tmpfs, user_directory_name
from goodput.environment import read_environment
from goodput.guard import warn_once
from goodput.liveness import SUFFIX, LivenessLock, is_alive
from goodput.memory import HEADER_BYTES, lock_of
from goodput.process import boot_id
from goodput.recovery import Recovered, recover_source
from goodput.spoolfile import Segment, parse_segment

__all__ = [
    "Recovered",
    "Segment",
    "default_spool_directory",
    "list_segments",
    "list_sources",
    "recover_dead",
    "source_is_alive",
]

_UNFINISHED_S = 3600.0


def list_segments(directory: Path | str) -> list[Segment]:
    """The spool files, by source and number; none when the directory is missing."""
    try:
        found = [parse_segment(path) for path in Path(directory).iterdir()]
    except FileNotFoundError:
        return []
    return sorted(segment for segment in found if segment is not None)


def list_sources(directory: Path | str) -> dict[str, bool]:
    """The sources that have not been taken care of, and whether each one's process lives."""
    return {path.name.removesuffix(SUFFIX): is_alive(path) for path in _locks(Path(directory))}


def source_is_alive(directory: Path | str, source: str) -> bool:
    """The process that writes this source lives. It need not be of this PID namespace."""
    return is_alive(Path(directory) / f"{source}{SUFFIX}")


def recover_dead(directory: Path | str) -> list[Recovered]:
    """Complete the files of every source whose process has died, and give what was done.

    Safe beside other readers and beside live recorders: each dead source is handled under its own lock, by one
    process at a time, and a call that is killed leaves the rest to the next one. Every event that had been handed
    over is in the files afterwards, once (the last few may come twice, with the same `seq`, when a reader was
    killed between writing and removing). What cannot be read is left, warned of once, and never raised.
    """
    done: list[Recovered] = []
    boot = boot_id()
    for path in _locks(Path(directory)):
        try:
            lock = LivenessLock.take_over(path)
            if lock is None:
                continue
            try:
                recovered = recover_source(lock, boot)
            finally:
                lock.release(remove=False)
            if recovered is not None:
                done.append(recovered)
        except (OSError, ValueError) as error:
            warn_once(f"recover {path}", f"{path.name}: what its process left could not be taken up: {error}")
    _sweep_locks(Path(directory))
    _sweep_memory()
    return done


def _locks(directory: Path) -> list[Path]:
    try:
        return sorted(path for path in directory.glob(f"*{SUFFIX}") if not path.name.startswith("."))
    except OSError:
        return []


def _sweep_locks(directory: Path) -> None:
    """Remove lock files that a process killed at its very start never finished."""
    try:
        for path in directory.glob(f".*{SUFFIX}.new"):
            if time.time() - path.lstat().st_mtime > _UNFINISHED_S:
                path.unlink(missing_ok=True)
    except OSError:
        pass


def _sweep_memory() -> None:
    """Remove this user's memory segments whose process has died and whose lock file is gone: somebody removed the
    spool, and nobody would ever find them."""
    root = read_environment().memory
    try:
        if root is None or not is_tmpfs(root):
            return
        for path in (Path(root) / user_directory_name()).iterdir():
            found = path.lstat()
            old = time.time() - found.st_mtime > _UNFINISHED_S
            if old and stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not is_alive(path):
                with path.open("rb") as file:
                    lock = lock_of(file.read(HEADER_BYTES))
                if lock is None or not lock.exists():
                    path.unlink(missing_ok=True)
    except OSError:
        pass
