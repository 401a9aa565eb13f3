"""What the demonstration does inside a training process: faults that are asked for, and a log of what really happened.

The injector asks by a small control file; each rank writes what it did, by its own reading of the wall clock, to a
log of its own. That log is the truth that the ledger is held against, so nothing of the recorder is used here.
Without `GOODPUT_DEMO_DIR` in the environment nothing is asked and nothing is written.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

DIR_VARIABLE = "GOODPUT_DEMO_DIR"
PARENT_VARIABLE = "GOODPUT_DEMO_PID"
CONTROL_FILE = "control.json"
TRUTH_DIR = "truth"


class Stage(Protocol):
    """What the training script offers to whoever wants to disturb it."""

    def step(self, step: int) -> contextlib.AbstractContextManager[None]:
        """Around a step: notes when it really began and ended."""

    def save(self, step: int) -> contextlib.AbstractContextManager[None]:
        """Around a save: notes it, and makes it slow where that was asked for."""

    def lag(self, step: int) -> None:
        """In a rank's own work: sleeps where that was asked for."""

    def own_work_done(self) -> None:
        """Notes when this rank's own part of the step was done."""

    def lifetime(self) -> contextlib.AbstractContextManager[None]:
        """Around the training: notes when an exception ended it."""

    def is_last(self, step: int) -> bool:
        """Whether the training was asked to end after this step."""


class QuietStage:
    """Nobody disturbs: the script is run on its own."""

    def step(self, step: int) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def save(self, step: int) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def lag(self, step: int) -> None:
        return None

    def own_work_done(self) -> None:
        return None

    def lifetime(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def is_last(self, step: int) -> bool:
        return False


class DisturbedStage:
    """One rank under the injector's hands."""

    def __init__(self, home: Path, rank: int) -> None:
        self._rank = rank
        self._control_path = home / CONTROL_FILE
        self._control: dict[str, Any] = {}
        self._control_mtime_ns = -1
        self._own_end_ns: int | None = None
        folder = home / TRUTH_DIR
        folder.mkdir(exist_ok=True)
        # One unbuffered write a line: what happened stays known when this process is killed at the next instruction.
        self._log = os.open(folder / f"rank-{rank}-{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        _die_with_parent()
        self._tell("up")

    @contextlib.contextmanager
    def step(self, step: int) -> Iterator[None]:
        self._read_control()
        self._own_end_ns = None
        start_ns = time.time_ns()
        yield
        end_ns = time.time_ns()
        own_ns = None if self._own_end_ns is None else self._own_end_ns - start_ns
        self._tell("step", step=step, start_ns=start_ns, end_ns=end_ns, own_ns=own_ns)

    @contextlib.contextmanager
    def save(self, step: int) -> Iterator[None]:
        start_ns = time.time_ns()
        wanted = self._control.get("slow_save")
        if wanted and wanted["step"] == step and wanted["rank"] == self._rank:
            self._sleep("slow_save", step, wanted["sleep_s"])
        yield
        self._tell("save", step=step, start_ns=start_ns, end_ns=time.time_ns())

    def lag(self, step: int) -> None:
        wanted = self._control.get("slow_rank")
        if wanted and wanted["rank"] == self._rank and wanted["first_step"] <= step <= wanted["last_step"]:
            self._sleep("slow_rank", step, wanted["sleep_s"])

    def own_work_done(self) -> None:
        self._own_end_ns = time.time_ns()

    @contextlib.contextmanager
    def lifetime(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._tell("raised", error=type(error).__name__)
            raise
        self._tell("done")

    def is_last(self, step: int) -> bool:
        # Equality, so that a wish that came too late for one rank is not half followed by the others.
        return bool(self._control.get("last_step") == step)

    def _sleep(self, why: str, step: int, seconds: float) -> None:
        start_ns = time.time_ns()
        time.sleep(seconds)
        self._tell("slept", why=why, step=step, start_ns=start_ns, end_ns=time.time_ns())

    def _read_control(self) -> None:
        try:
            mtime_ns = self._control_path.stat().st_mtime_ns
            if mtime_ns != self._control_mtime_ns:
                self._control = json.loads(self._control_path.read_text())
                self._control_mtime_ns = mtime_ns
        except FileNotFoundError:
            pass

    def _tell(self, what: str, **more: Any) -> None:
        line = {"what": what, "rank": self._rank, "pid": os.getpid(), "ts_ns": time.time_ns(), **more}
        os.write(self._log, json.dumps(line).encode() + b"\n")


def join_stage(rank: int) -> Stage:
    """The stage that this process plays on, found through the environment."""
    home = os.environ.get(DIR_VARIABLE)
    return DisturbedStage(Path(home), rank) if home else QuietStage()


def _die_with_parent() -> None:
    """Lets the kernel end this process with its launcher, even if that is killed: no demonstration is left behind."""
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # 1 is PR_SET_PDEATHSIG
    except (OSError, AttributeError):
        pass
    parent = os.environ.get(PARENT_VARIABLE)
    if parent and not Path(f"/proc/{parent}").exists():  # it had gone before the kernel was asked
        os._exit(1)
