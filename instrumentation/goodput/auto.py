"""What `goodput run` has loaded in a process that imports torch: decides whether it is a rank, and records it.

A rank is a process to which a launcher gave a rank of its own, or one that forms a process group, or one that builds
an optimizer. DataLoader workers and all other children of a rank are none; neither is the launcher itself.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from importlib.machinery import ModuleSpec
from itertools import pairwise
from pathlib import Path
from typing import Any

from goodput import hooks, launchfolder
from goodput._adapters import surround, traceless
from goodput.environment import read_environment
from goodput.events import StopReason
from goodput.guard import Guard, warn_elsewhere, warn_once
from goodput.identity import identify
from goodput.launchfolder import JOB_VARIABLE, LAUNCH_VARIABLE, RANK_VARIABLE, EndFile, RankFile
from goodput.protocol import Recorder
from goodput.recorder import LiveRecorder
from goodput.tally import Summary

guard = Guard()

_PLACE = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
_CHECKPOINT = "torch.distributed.checkpoint"


class _Watch:
    """This process's part; there is one.

    Attributes:
        recorder: what is being recorded, None while this process has not turned out to be a rank.
        over: nothing is to be begun here any more.
    """

    def __init__(self) -> None:
        self.recorder: LiveRecorder | None = None
        self.over = False


_watch = _Watch()


def torch_imported() -> None:
    """torch has just been imported. Never raises."""
    try:
        folder = os.environ.get(LAUNCH_VARIABLE)
        if not folder or os.environ.get(RANK_VARIABLE) not in (None, str(os.getpid())):
            return
        warn_elsewhere(lambda sentence: launchfolder.write_note(Path(folder), sentence))
        os.register_at_fork(after_in_child=_in_child)
        _wrap_wait(Path(folder))
        _wrap_process_group()
        if _is_helper(sys.orig_argv):
            return
        for name, watch in _TRAINERS.items():
            _call_after_import(name, watch)
        if all(name in os.environ for name in _PLACE):
            _begin({})
        else:
            _wrap_optimizers()
    except Exception as error:
        guard.caught("this process could not be watched", error)


def taken_over() -> Recorder | None:
    """The recorder that is already at work here, for a program that starts its own; None for none."""
    return _watch.recorder if _watch.recorder is not None and _watch.recorder.active else None


def _begin(place: Mapping[str, str]) -> None:
    """Record this process as a rank; `place`: what the launcher's variables do not tell of it."""
    if _watch.over:
        return
    _watch.over = True
    # From here on this process's children are a rank's, whatever becomes of the record.
    os.environ[RANK_VARIABLE] = str(os.getpid())
    from goodput.starting import begin, two_names

    environment = read_environment({**os.environ, **place})
    identity = identify(environment.variables, host=os.uname().nodename, pid=os.getpid(), parent_pid=os.getppid())
    # A program that has begun its own record before anything showed it to be a rank: that one is gone on with.
    recorder: Recorder | None = hooks.recording()
    if recorder is None:
        job = os.environ.get(JOB_VARIABLE) if identity.job.startswith("local:") else None
        recorder = begin(environment, job=environment.job or job)
    elif environment.run not in (None, "", recorder.run):
        warn_once("two names for a run", two_names(recorder.run, environment.run))
    if not isinstance(recorder, LiveRecorder):
        return
    _watch.recorder = recorder
    folder = Path(os.environ[LAUNCH_VARIABLE])
    recorder.on_end = lambda summary, reason: _ended(folder, recorder.source, summary, reason)
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    launchfolder.write_rank(
        folder,
        RankFile(
            source=recorder.source,
            run=recorder.run,
            rank=identity.rank,
            local_rank=identity.local_rank,
            world_size=identity.world_size,
            local_world_size=int(local) if local.isdigit() else None,
            pid=os.getpid(),
            start_ticks=launchfolder.start_ticks(),
            begun_ns=time.time_ns(),
        ),
    )
    _wrap_exit()
    _call_after_import(_CHECKPOINT, _watch_checkpoints)
    # Imported here: it imports torch, which stands ready now.
    import goodput.torch as ours

    ours.watch(rec=recorder)


def _ended(folder: Path, source: str, summary: Summary, reason: StopReason) -> None:
    try:
        fields = {**asdict(summary), "by_category_ns": dict(summary.by_category_ns)}
        launchfolder.write_end(folder, EndFile(source=source, reason=reason.value, summary=fields))
    except Exception as error:
        guard.caught("the summary could not be left for goodput run", error)


def _in_child() -> None:
    """A forked child of a rank is none; one of a process that is no rank may become one."""
    if _watch.recorder is not None:
        _watch.recorder, _watch.over = None, True


def _is_helper(arguments: list[str]) -> bool:
    """The process belongs to `multiprocessing`: a worker, or a server that makes workers."""
    return "--multiprocessing-fork" in arguments or any(
        before == "-c" and code.startswith("from multiprocessing.") for before, code in pairwise(arguments)
    )


# -- what tells that this is a rank ----------------------------------------------------------------------------------


def _wrap_process_group() -> None:
    distributed: Any = sys.modules.get("torch.distributed")
    original = getattr(distributed, "init_process_group", None)
    if original is None:
        return
    wrapped = surround(original, _forming)
    distributed.init_process_group = wrapped
    inner: Any = sys.modules.get("torch.distributed.distributed_c10d")
    if getattr(inner, "init_process_group", None) is original:
        inner.init_process_group = wrapped


def _forming(*args: Any, **named: Any) -> AbstractContextManager[Any] | None:
    """Around the forming of a process group."""
    if not _watch.over:
        # Where the program itself says who it is, no launcher does.
        rank, size = named.get("rank", -1), named.get("world_size", -1)
        given = type(rank) is int and type(size) is int and 0 <= rank < size and "RANK" not in os.environ
        _begin({"RANK": str(rank), "WORLD_SIZE": str(size)} if given else {})
    recorder = _watch.recorder
    if recorder is None or not recorder.active or recorder.phase()[0] == "rendezvous":
        return None
    return recorder.span("rendezvous")


def _wrap_optimizers() -> None:
    """The first optimizer that is built makes this process a rank."""
    optimizer: Any = sys.modules["torch"].optim.Optimizer
    original = optimizer.__init__

    def building(*_: Any, **__: Any) -> None:
        if optimizer.__init__ is wrapped:
            optimizer.__init__ = original
        if not _watch.over:
            _begin({})

    wrapped = optimizer.__init__ = surround(original, building)


def _trainer_recorder(trainer: Any) -> LiveRecorder | None:
    """A trainer that begins to train makes this process a rank; it may know better than the launcher which."""
    try:
        rank, size = getattr(trainer, "global_rank", None), getattr(trainer, "world_size", None)
        given = type(rank) is int and type(size) is int and 0 <= rank < size and size > 1 and "RANK" not in os.environ
        if not _watch.over:
            _begin({"RANK": str(rank), "WORLD_SIZE": str(size)} if given else {})
    except Exception as error:
        guard.caught("the training could not be recorded", error)
    recorder = _watch.recorder
    return recorder if recorder is not None and recorder.active else None


def _watch_transformers() -> None:
    import goodput.huggingface as ours

    ours.prepare(_trainer_recorder)


def _watch_lightning() -> None:
    import goodput.lightning as ours

    ours.prepare(_trainer_recorder)


# Each where it stands ready: the package of Lightning is only whole at its end.
_TRAINERS: Mapping[str, Callable[[], None]] = {
    "transformers.trainer": _watch_transformers,
    "lightning.pytorch": _watch_lightning,
    "pytorch_lightning": _watch_lightning,
}


# -- what else has no hook ---------------------------------------------------------------------------------------------


def _wrap_wait(folder: Path) -> None:
    """A parent that waits for its ranks inside the kernel takes their status before anybody else can see it."""
    wait = os.waitpid

    def waitpid(pid: int, options: int, /) -> tuple[int, int]:
        ended, status = wait(pid, options)
        if ended and status:
            try:
                launchfolder.write_status(folder, ended, os.waitstatus_to_exitcode(status))
            except (OSError, ValueError):
                # The folder has gone, as in a process that outlives the command; or the child was only stopped.
                pass
        return ended, status

    os.waitpid = traceless(waitpid)


def _wrap_exit() -> None:
    """The ways to leave that nothing else tells of: `sys.exit` with a status, and `os._exit(0)`, which without a word
    would look like a death."""
    leave, stop = os._exit, sys.exit

    def _exit(status: int) -> Any:
        if status == 0:
            try:
                hooks.end_all(StopReason.EXITED)
            except Exception:
                pass
        leave(status)

    def exit_(status: Any = None, /) -> Any:
        try:
            recorder = _watch.recorder
            if recorder is not None and threading.current_thread() is threading.main_thread():
                # Taken back if somebody catches it and training goes on.
                recorder.left_by(SystemExit(status))
        except Exception:
            pass
        stop(status)

    os._exit = _exit
    sys.exit = traceless(exit_)


def _watch_checkpoints() -> None:
    import goodput.dcp as ours

    ours.watch(rec=_watch.recorder)


def _call_after_import(name: str, call: Callable[[], None]) -> None:
    """Call once a module is there: now, or when its import is done."""
    if name in sys.modules:
        call()
    else:
        sys.meta_path.insert(0, _AfterImport(name, call))


class _AfterImport:
    """A finder that finds nothing itself, but sees that a module is being imported."""

    def __init__(self, name: str, call: Callable[[], None]) -> None:
        self._name = name
        self._call = call

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        from importlib.util import find_spec

        try:
            sys.meta_path.remove(self)
            spec = find_spec(name)
            loader: Any = None if spec is None else spec.loader
            if loader is None:
                return None
            execute = loader.exec_module

            def exec_module(module: Any) -> None:
                del loader.exec_module
                try:
                    execute(module)
                except BaseException as error:
                    # The user is to see the import's own lines, and no line of this file between them.
                    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
                    raise
                try:
                    self._call()
                except Exception as error:
                    guard.caught(f"{name} could not be watched", error)

            loader.exec_module = exec_module
            return spec
        except Exception as error:
            guard.caught(f"{name} could not be watched", error)
            return None
