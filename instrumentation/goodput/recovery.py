"""Takes up what a dead process left in its memory: the last bytes of its stream, and what it would have said next."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from goodput.events import Kind, StopReason, format_event, format_step, naming_prefix
from goodput.liveness import SUFFIX, LivenessLock, SourceInfo
from goodput.memory import FILE_BYTES, Remains, read_remains
from goodput.outcome import stop_fields
from goodput.spoolfile import segment_path

_TAIL_BYTES = 256 * 1024
_ELSEWHERE_S = 86400.0
_KILLED_FULL = "memory was full when the process was killed"
_SEQ = re.compile(rb'"seq":(\d+)')
_TS = re.compile(rb'"ts_ns":(\d+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """A dead source whose record is now complete on disk.

    Attributes:
        info: who it was.
        events: events that were added to its spool files.
        damaged: lines that a kill had cut in the middle of a copy; their call had not returned.
        lost_memory: its memory was not there any more, as after a reboot.
    """

    info: SourceInfo
    events: int
    damaged: int
    lost_memory: bool


def recover_source(lock: LivenessLock, boot_id: str | None) -> Recovered | None:
    """Complete the spool files of the source whose lock was taken over, then remove its memory and lock.

    None when its memory is not to be seen from here but may exist (another container's tmpfs): for a day, all is left
    as it is then. Raises OSError and ValueError; nothing is lost by that, a later call goes on where this one ended.
    """
    info = lock.read()
    directory = lock.path.parent
    if lock.path.name != f"{info.source}{SUFFIX}":
        # The name leads to files that are written to, perhaps with more rights than the author of this one had.
        raise ValueError(f"{lock.path} names another source")
    image = None
    if info.memory is not None:
        image = _read_memory(Path(info.memory), lock.owner_uid())
        age_s = time.time() - lock.path.lstat().st_mtime
        if image is None and info.boot_id == boot_id and age_s < _ELSEWHERE_S:
            return None
    if image is None:
        lock.release(remove=True)
        return Recovered(info=info, events=0, damaged=0, lost_memory=info.memory is not None)

    remains = read_remains(image)
    added = _complete(directory, info, remains, lock.owner_uid())
    Path(str(info.memory)).unlink(missing_ok=True)
    lock.release(remove=True)
    return Recovered(info=info, events=added, damaged=remains.damaged, lost_memory=False)


def _read_memory(path: Path, owner_uid: int) -> bytes | None:
    """The whole memory file; None when there is none. Raises PermissionError when it is not the source's own."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != owner_uid:
            raise PermissionError(f"{path} is not the memory of the process that names it")
        image = b""
        while len(image) < min(found.st_size, 2 * FILE_BYTES):
            piece = os.pread(fd, FILE_BYTES, len(image))
            if not piece:
                break
            image += piece
        return image
    finally:
        os.close(fd)


def _complete(directory: Path, info: SourceInfo, remains: Remains, owner_uid: int) -> int:
    """Append the rest of the stream and the closing events; gives how many events that were."""
    cursor, rest = remains.cursor, remains.stream
    if not rest and remains.pending is None and remains.outcome is None and not remains.lost:
        return 0
    path = segment_path(directory, info.source, cursor.file_number)
    prefix = naming_prefix(info.run, info.source)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if os.geteuid() != owner_uid:
            os.fchown(fd, owner_uid, -1)
        size = os.fstat(fd).st_size
        before = cursor.file_bytes
        if before == 0 or size == 0:
            # The file has not got its names yet, or only some bytes of them; or it was shipped and removed, and
            # the first part of a line with it.
            if before and not rest.startswith((prefix, b'{"kind":')):
                rest = rest[rest.find(b"\n") + 1 :]
            stream = prefix + rest[1:] if rest and not rest.startswith(prefix) else rest
            written = min(size, len(stream))
        else:
            # What the file has beyond the cursor was written after the cursor was last kept.
            stream = rest
            written = min(max(size - before, 0), len(rest))
        stream = stream[written:]
        known = _tail(fd, size) + stream
        closing = b"".join(prefix + line[1:] for line in _closing_events(info, remains, known))
        _write_all(fd, stream + closing)
    finally:
        os.close(fd)
    return stream.count(b"\n") + closing.count(b"\n")


def _closing_events(info: SourceInfo, remains: Remains, known: bytes) -> list[bytes]:
    """The step that waited to be joined with the next ones, what found no room, and the `stop` that an exception had
    announced."""
    added: list[bytes] = []
    if remains.pending is not None and not re.search(rb'"seq":%d[,}]' % remains.pending[0], known):
        added.append(format_step(*remains.pending))
    lost = remains.lost if _KILLED_FULL.encode("ascii") not in known else 0
    outcome = remains.outcome if b'"kind":"stop"' not in known else None
    if not lost and outcome is None:
        return added
    everything = known + b"".join(added)
    seq = max((int(found) for found in _SEQ.findall(everything)), default=-1) + 1
    last_ns = max((int(found) for found in _TS.findall(everything)), default=0)
    if lost:
        added.append(format_event(Kind.DROPPED, seq, last_ns, {"reason": _KILLED_FULL, "count": lost}))
        seq += 1
    if outcome is not None:
        fields = json.loads(outcome)
        added.append(
            format_event(
                Kind.STOP,
                seq,
                max(int(fields["ts_ns"]), last_ns),
                stop_fields(StopReason(fields["reason"]), fields["detail"]),
            )
        )
    return added


def _tail(fd: int, size: int) -> bytes:
    return os.pread(fd, _TAIL_BYTES, max(size - _TAIL_BYTES, 0))


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
