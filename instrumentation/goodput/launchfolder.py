"""The folder through which `goodput run` and the rank processes below it know of each other.

It lies on tmpfs, so that no disk can hold a rank up. Each rank that records leaves `<source>.rank`, and `<source>.end`
when its record has been closed; a parent that has taken a rank's exit status leaves `<pid>.status`; a process in which
nothing could be recorded leaves `<reason>.word`, and what else a process has to say is in `<digest>.note`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from goodput.directory import prepare_directory, tmpfs_directory
from goodput.liveness import hold, is_alive
from goodput.tally import Summary

LAUNCH_VARIABLE = "_GOODPUT_LAUNCH"
"""Path of the folder; set for the command by `goodput run`."""
RANK_VARIABLE = "_GOODPUT_RANK"
"""Process number of the rank; set by it for its children, which are no ranks."""
JOB_VARIABLE = "_GOODPUT_JOB"
"""Name of the job where no launcher names it, the same for all ranks of one `goodput run`."""

_NOTE_MAX_CHARS = 500
_LOCK = "launch.lock"
_UNFINISHED_S = 60.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFile:
    """A rank that records.

    Attributes:
        source, run, rank, local_rank, world_size: who it is.
        pid, start_ticks: its process; the start time tells a number that was given twice.
        local_world_size: ranks that the launcher started on this node, None where it does not say.
        begun_ns: when its record began.
    """

    source: str
    run: str
    rank: int
    local_rank: int
    world_size: int
    local_world_size: int | None
    pid: int
    start_ticks: int
    begun_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndFile:
    """How a rank's record ended: the `stop`'s reason, and the summary's fields."""

    source: str
    reason: str
    summary: Mapping[str, Any]

    def as_summary(self) -> Summary:
        """Raises TypeError when it is another version's."""
        return Summary(**self.summary)


def make_folder(memory: str | None, spool: Path) -> Path:
    """A new folder, on tmpfs where `memory` is that, else in the spool; those of launches that were killed go.

    Raises OSError when there is no place for it.
    """
    try:
        root = tmpfs_directory(memory) or spool
    except OSError:
        root = spool
    prepare_directory(root)
    _sweep(root)
    folder = root / f"launch-{os.urandom(8).hex()}"
    folder.mkdir(mode=0o700)
    # Held as long as we live, and by nobody after us: so the next one knows that the folder can go.
    lock = folder / _LOCK
    hold(lock, os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    return folder


def _sweep(root: Path) -> None:
    for folder in root.glob("launch-*"):
        try:
            old = time.time() - folder.lstat().st_mtime > _UNFINISHED_S
            if old and folder.is_dir() and not folder.is_symlink() and not is_alive(folder / _LOCK):
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue


def write_rank(folder: Path, rank: RankFile) -> None:
    """Raises OSError."""
    _write(folder / f"{rank.source}.rank", asdict(rank))


def write_end(folder: Path, end: EndFile) -> None:
    """Raises OSError."""
    _write(folder / f"{end.source}.end", asdict(end))


def read_ranks(folder: Path) -> list[RankFile]:
    """The ranks so far, in the order in which they began."""
    found = [_made(RankFile, fields) for fields in _read(folder, ".rank")]
    return sorted((rank for rank in found if rank is not None), key=lambda rank: (rank.begun_ns, rank.rank))


def read_ends(folder: Path) -> dict[str, EndFile]:
    """The records that were closed, by source."""
    found = [_made(EndFile, fields) for fields in _read(folder, ".end")]
    return {end.source: end for end in found if end is not None}


def write_status(folder: Path, pid: int, code: int) -> None:
    """A process has ended, with a code as `subprocess` has it. Raises OSError."""
    (folder / f"{pid}.status").write_text(str(code), encoding="ascii")


def read_status(folder: Path, pid: int) -> int | None:
    """How a process ended that its parent has taken; None where no parent told."""
    try:
        return int((folder / f"{pid}.status").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def read_words(folder: Path) -> list[str]:
    """Why nothing could be recorded in some process."""
    try:
        return sorted(path.stem for path in folder.iterdir() if path.name.endswith(".word"))
    except OSError:
        return []


def write_note(folder: Path, sentence: str) -> None:
    """Something that a person should read in the end; the same sentence of many ranks once. Raises OSError."""
    digest = hashlib.sha256(sentence.encode("utf-8", "replace")).hexdigest()[:16]
    (folder / f"{digest}.note").write_text(sentence[:_NOTE_MAX_CHARS], encoding="utf-8", errors="replace")


def read_notes(folder: Path) -> list[str]:
    """What processes had to say."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.name.endswith(".note"))
        return [" ".join(path.read_text(encoding="utf-8", errors="replace").split()) for path in paths]
    except OSError:
        return []


def start_ticks(pid: int | str = "self") -> int:
    """When a process was started, in the kernel's ticks since boot; 0 when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        return int(stat.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def _write(path: Path, fields: Mapping[str, Any]) -> None:
    draft = path.with_name(f".{path.name}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(fd, json.dumps(fields).encode("ascii"))
    finally:
        os.close(fd)
    draft.rename(path)


def _read(folder: Path, suffix: str) -> Iterator[dict[str, Any]]:
    try:
        paths = sorted(path for path in folder.iterdir() if path.name.endswith(suffix) and path.name[0] != ".")
    except OSError:
        return
    for path in paths:
        try:
            found = json.loads(path.read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(found, dict):
            yield found


def _made(kind: type[T], fields: dict[str, Any]) -> T | None:
    try:
        return kind(**fields)
    except TypeError:
        return None
