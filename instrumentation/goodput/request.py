"""The platform asks a run for a checkpoint: a small file in the spool, which `rec.checkpoint_requested()` answers to.

Whoever watches the spool (an agent, a collector, a person) writes it with `write_request`, or by hand:

    <spool>/checkpoint-<key>.request      key: `goodput.firsttime.run_key(run)`, 16 hexadecimal digits

    {"v": 1, "id": "maintenance-17", "run": "llama-7b", "step": 1250, "until_ns": 1767225600000000000}

- `id` tells one request from the next; a rank that has saved for it does not hear of it again.
- `run` is the run's name; a file of another run is ignored.
- `step`: ask after this step. A rank's answer turns true once it is done, so that all ranks of a synchronous job answer
  true after the same step, although they read the file at different moments: take one that lies a second or more
  ahead. Null: at once, and then ranks may differ by some steps.
- `until_ns`, in nanoseconds since the epoch: after it nobody is asked any more. Null for no end.

The file is written under another name and then renamed, so that it is whole or absent; it belongs to the user of the
training process, or to root. The recorder's thread looks for it each half second. For a rank a request is over
when a `checkpoint` span that began after it was heard has ended well, when `until_ns` has passed, or when the file has
gone.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from goodput.firsttime import run_key

VERSION = 1
_MAX_BYTES = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRequest:
    """A save that somebody asks for (see the module for what the fields mean)."""

    id: str
    run: str
    step: int | None = None
    until_ns: int | None = None


def request_path(spool: Path | str, run: str) -> Path:
    """Where the request for this run is."""
    return Path(spool) / f"checkpoint-{run_key(run)}.request"


def write_request(spool: Path | str, request: CheckpointRequest) -> Path:
    """Ask; takes the place of what was asked before. Raises OSError."""
    path = request_path(spool, request.run)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    content = {"v": VERSION, "id": request.id, "run": request.run, "step": request.step, "until_ns": request.until_ns}
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(fd, json.dumps(content).encode("ascii") + b"\n")
        finally:
            os.close(fd)
        draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)
    return path


def withdraw_request(spool: Path | str, run: str) -> None:
    """Ask no more. Raises OSError."""
    request_path(spool, run).unlink(missing_ok=True)


def read_request(spool: Path | str, run: str) -> CheckpointRequest | None:
    """What is asked of this run, None for nothing. Raises OSError, and ValueError for a file that is no request."""
    path = request_path(spool, run)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        if os.fstat(fd).st_uid not in (os.geteuid(), 0):
            raise ValueError(f"{path} belongs to another user")
        content = os.read(fd, _MAX_BYTES)
    finally:
        os.close(fd)
    try:
        found = json.loads(content)
        step, until_ns = found.get("step"), found.get("until_ns")
        request = CheckpointRequest(
            id=str(found["id"]),
            run=str(found["run"]),
            step=None if step is None else int(step),
            until_ns=None if until_ns is None else int(until_ns),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path} is not a request for a checkpoint: {error}") from error
    return request if request.run == run else None


class RequestWatch:
    """Looks for requests, for one recorder.

    `poll` is called by the recorder's own thread. The training thread reads `pending`, one attribute, and tells saves.

    Attributes:
        pending: what is asked and not yet done; None for nothing.
    """

    __slots__ = ("_answered", "_path", "_run", "_spool", "_stamp", "pending")

    def __init__(self, *, spool: Path, run: str) -> None:
        self._spool = spool
        self._run = run
        # Ten times a second: nothing is worked out again.
        self._path = os.fspath(request_path(spool, run))
        self._answered: str | None = None
        self._stamp: tuple[int, int] | None = None
        self.pending: CheckpointRequest | None = None

    def poll(self, now_ns: int) -> None:
        """Look at the file, if it has changed. Raises OSError and ValueError, once for a file that is no request."""
        # Nothing there is the rule, and this answers it without an exception and without a record of the file.
        if not os.access(self._path, os.F_OK):
            self._stamp = self.pending = None
            return
        pending = self.pending
        try:
            found = os.lstat(self._path)
        except FileNotFoundError:
            self._stamp = self.pending = None
            return
        stamp = (found.st_ino, found.st_mtime_ns)
        if stamp != self._stamp:
            self._stamp = stamp
            self.pending = None
            pending = read_request(self._spool, self._run)
            if pending is not None and pending.id == self._answered:
                pending = None
        over = pending is not None and pending.until_ns is not None and now_ns > pending.until_ns
        if over or (pending is not None and pending.id == self._answered):
            pending = None
        self.pending = pending

    def answered(self, request: CheckpointRequest) -> None:
        """A save that began after this was asked has ended well."""
        self._answered = request.id
        if self.pending is request:
            self.pending = None
